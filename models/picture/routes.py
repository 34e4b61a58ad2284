"""The arrows of a picture of a hierarchy: how they run between its shapes without crossing any."""

from collections import defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .lettering import Lettering, measure

__all__ = ["Arrow", "Link", "Node", "Row", "along", "place_texts", "route"]

SHEET = 0.06  # how far each sheet of a plate shows behind the one before it
CLEARANCE = 0.07  # between an arrow and a shape that it passes
LANES = 0.45  # beside a row, for arrows that find no gap in it
FAN = {"vector": 0.12, "observed": 0.12, "plate": 0.5}  # between the ends of arrows, at most
SPOTS = sorted(np.arange(0.1, 0.91, 0.04), key=lambda share: abs(share - 0.5))  # for texts
STRENGTH = 0.4  # of arrows that stand for no known weight

Point = tuple[float, float]
Key = tuple[str, int]
Box = tuple[float, float, float, float]  # centre and half its width and height


class Node(NamedTuple):
    """A circle (a vector, the context, the reward) or a plate (all vectors of a level)."""

    gid: str
    kind: str  # "vector", "plate" or "observed"
    x: float
    y: float
    half_width: float
    half_height: float
    lettering: Lettering
    sheets: int = 0  # behind a plate

    @property
    def rise(self) -> float:
        """How far the sheets behind a plate show, upwards and to the right."""
        return SHEET * self.sheets

    @property
    def reach(self) -> float:
        """Half the width that the shape and its caption take."""
        return max(self.half_width + self.rise, self.lettering.width / 2)


class Link(NamedTuple):
    """What an arrow ties and shows, before it is routed. Shapes are named by level and index."""

    gid: str
    tail: Key
    head: Key
    kind: str = "plain"  # or "positive", "negative", "learned"
    weight: float = 0.0
    text: str = ""


class Arrow(NamedTuple):
    """A line through `points` with a head at the last; `strength` is relative to the strongest."""

    gid: str
    kind: str
    points: list[Point]
    strength: float = STRENGTH
    text: str = ""
    text_at: Point = (0.0, 0.0)


class Row(NamedTuple):
    """Shapes side by side; arrows come in at `top` and leave at `bottom`, below any captions."""

    nodes: dict[Key, Node]
    top: float
    bottom: float


def route(links: list[Link], rows: list[Row]) -> list[Arrow]:
    """Straight arrows to the next row; those to a later one bend around the shapes in between."""
    place = {key: row for row in rows for key in row.nodes}
    tails = [place[link.tail].nodes[link.tail] for link in links]
    heads = [place[link.head].nodes[link.head] for link in links]
    stops = _stops(tails, heads, rows)
    ways = [
        [(tail.x, tail.y), *between, (head.x, head.y)]
        for tail, between, head in zip(tails, stops, heads, strict=True)
    ]
    feet, crowns = _fan(tails, [way[1] for way in ways]), _fan(heads, [way[-2] for way in ways])
    strongest = max(link.weight for link in links) or 1.0
    arrows = []
    for n, link in enumerate(links):
        foot, head = _foot(tails[n], feet[n], place[link.tail].bottom), heads[n]
        crown = head.x + crowns[n], head.y + _edge(head, crowns[n]) + head.rise
        points = _bend([foot[-1], *stops[n], crown]) if stops[n] else [foot[-1], crown]
        strength = link.weight / strongest if link.weight else STRENGTH
        arrows.append(Arrow(link.gid, link.kind, [*foot[:-1], *points], strength, link.text))
    return arrows


def _stops(tails: list[Node], heads: list[Node], rows: list[Row]) -> list[list[Point]]:
    """Where each arrow enters and leaves the rows that it passes on its way."""
    stops: list[list[Point]] = [[] for _ in tails]
    for row in rows:
        passing = {}
        for n, (tail, head) in enumerate(zip(tails, heads, strict=True)):
            if tail.y > row.top and head.y < row.bottom:
                share = (tail.y - row.top) / (tail.y - head.y)
                passing[n] = tail.x + share * (head.x - tail.x)
        for n, x in _lanes(passing, row).items():
            stops[n] += [(x, row.top), (x, row.bottom)]
    return stops


def _lanes(passing: dict[int, float], row: Row) -> dict[int, float]:
    """Where arrows that would pass a row at these places pass it instead: in the nearest gap."""
    reaches = [(node.x, node.reach + CLEARANCE) for node in row.nodes.values()]
    sides = sorted((x - reach, x + reach) for x, reach in reaches)
    gaps = [(a[1], b[0]) for a, b in pairwise(sides) if b[0] - a[1] > CLEARANCE]
    first, last = sides[0][0], sides[-1][1]
    gaps = [(first - LANES, first), *gaps, (last, last + LANES)]
    groups: dict[tuple[float, float], list[int]] = defaultdict(list)
    for n, x in sorted(passing.items(), key=lambda item: item[1]):
        groups[min(gaps, key=lambda gap: max(gap[0] - x, x - gap[1], 0.0))].append(n)
    lanes = {}
    for (low, high), members in groups.items():
        width = min(high - low, 1.5 * CLEARANCE * (len(members) - 1))
        centre = np.mean([passing[n] for n in members])
        start = min(max(centre - width / 2, low), high - width)
        lanes |= zip(members, np.linspace(start, start + width, len(members)), strict=True)
    return lanes


def _fan(nodes: list[Node], toward: list[Point]) -> list[float]:
    """How far from the middle of its node each arrow ends, so that arrows do not overlap there."""
    groups: dict[str, list[int]] = defaultdict(list)
    slopes = [(x - node.x) / abs(y - node.y) for node, (x, y) in zip(nodes, toward, strict=True)]
    for n in np.argsort(slopes, kind="stable"):
        groups[nodes[n].gid].append(int(n))
    shifts = [0.0] * len(nodes)
    for members in groups.values():
        count, node = len(members), nodes[members[0]]
        step = min(FAN[node.kind], 1.2 * node.half_width / max(count - 1, 1))
        for position, n in enumerate(members):
            shift = step * (position - (count - 1) / 2)
            # A flat arrow must not cut through the circle to end on its far side.
            limit = 0.7 * node.half_width / float(np.hypot(slopes[n], 1.0))
            shifts[n] = max(shift, -limit) if slopes[n] > 0 else min(shift, limit)
    return shifts


def _foot(tail: Node, shift: float, bottom: float) -> list[Point]:
    """Where an arrow leaves its tail; from under a caption it first leaves the row."""
    caption = tail.lettering.height("below")
    if caption:
        return [(tail.x, tail.y - tail.half_height - caption), (tail.x, bottom)]
    return [(tail.x + shift, tail.y - _edge(tail, shift))]


def _edge(node: Node, shift: float) -> float:
    """How far the edge of a shape is from the height of its centre."""
    height = node.half_height
    return height if node.kind == "plate" else float(np.sqrt(height**2 - shift**2))


def _bend(points: list[Point]) -> list[Point]:
    """A line through the points: curved between rows, vertical where it passes one."""
    t = np.linspace(0.0, 1.0, 17)[1:]
    across, down = t * t * (3 - 2 * t), 1.5 * t * (1 - t) + t**3  # leaves and arrives vertically
    path = points[:1]
    for step, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
        curve = zip(x0 + (x1 - x0) * across, y0 + (y1 - y0) * down, strict=True)
        path += [(x1, y1)] if step % 2 else [(float(x), float(y)) for x, y in curve]
    return path


def place_texts(arrows: list[Arrow], nodes: list[Node]) -> list[Arrow]:
    """Give each text the place along its arrow where it hides the least."""
    boxes: list[Box] = []
    for node in nodes:
        x, y = node.x + node.rise / 2, node.y + node.rise / 2  # with the sheets behind a plate
        boxes.append((x, y, node.half_width + node.rise / 2, node.half_height + node.rise / 2))
    lines = [along(arrow.points, np.linspace(0.0, 1.0, 41)) for arrow in arrows]
    placed = list(arrows)
    # Short arrows first: long ones have more places to choose from.
    for n in sorted(range(len(arrows)), key=lambda n: len(arrows[n].points)):
        if arrows[n].text:
            half = measure(arrows[n].text) / 2 + 0.06, 0.13
            others = np.concatenate(lines[:n] + lines[n + 1 :])
            spots = along(arrows[n].points, SPOTS)
            hidden = [_hidden(spot, half, boxes, others) for spot in spots]
            x, y = map(float, spots[np.argmin(hidden)])
            boxes.append((x, y, *half))
            placed[n] = arrows[n]._replace(text_at=(x, y))
    return placed


def along(points: list[Point], shares: Any) -> np.ndarray:
    """The points at these shares of the length of a line."""
    x, y = np.transpose(points)
    length = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    at = np.asarray(shares) * length[-1]
    return np.stack([np.interp(at, length, x), np.interp(at, length, y)], axis=-1)


def _hidden(spot: np.ndarray, half: Point, boxes: list[Box], points: np.ndarray) -> int:
    """How much a text would hide; a shape or a text counts more than any piece of an arrow."""
    (x, y), (width, height) = spot, half
    hits = sum(abs(x - bx) < width + bw and abs(y - by) < height + bh for bx, by, bw, bh in boxes)
    return int(1000 * hits + (np.abs(points - spot) < half).all(axis=1).sum())
