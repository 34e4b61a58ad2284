"""Where everything in the picture of a hierarchy stands, in inches; `render` draws it.

A small hierarchy is laid out vector by vector, with an arrow for each non-zero weight; a large one
level by level, as plates, with an arrow for each parent. Either way it is shapes in rows, tied by
links. Heights are negative: the top edge is at zero.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..level import Level
from .lettering import LINE, TITLE, Lettering, describe_law, describe_reward, letter_level, measure
from .routes import CLEARANCE, LANES, Arrow, Key, Link, Node, Row, place_texts, route

if TYPE_CHECKING:
    from ..hierarchy import Hierarchy

__all__ = ["Layout", "Note", "lay_out", "rows_by_rank"]

MAX_ROW, MAX_ARROWS = 14, 150  # more vectors in a row, or arrows in all, are drawn as plates
AREA, PITCH, RADIUS = 6.4, 1.1, 0.3  # of circles: width of a row, distance and radius, at most
BETWEEN_LEVELS = 0.6  # levels in one row stand apart by this share of the distance of circles
PLATE_HEIGHT, BETWEEN_PLATES = 0.26, 0.9
OBSERVED, CONTEXT = 0.34, 1.3  # radius of the reward and the context; distance between them
ROW_GAP, ARROW_GAP = 0.9, 0.006  # between rows, and for each arrow in the picture
MARGIN, LEGEND = 0.2, 0.4  # around the picture; below it
REWARD = ("reward", 0)


class Note(NamedTuple):
    """Words in the left margin: the name of a level, or the reward, and its law."""

    title: str
    lines: list[str]
    y: float = 0.0

    @property
    def height(self) -> float:
        """With the air that separates it from the next note."""
        return LINE * (1 + len(self.lines)) + 0.12


class Layout(NamedTuple):
    """The whole picture."""

    nodes: list[Node]
    arrows: list[Arrow]
    notes: list[Note]
    width: float
    height: float


def lay_out(hierarchy: "Hierarchy") -> Layout:
    """Place shapes, arrows and notes. Only a small hierarchy's weights are looked at one by one."""
    ranked = rows_by_rank(hierarchy.levels)
    links = list(_vector_links(hierarchy)) if _has_short_rows(ranked) else None
    if links is not None and len(links) <= MAX_ARROWS:
        shapes, legend = _circles(ranked), LEGEND if links else 0.0
    else:
        shapes, legend, links = _plates(ranked), 0.0, list(_level_links(hierarchy))
    links += [Link(f"arrow:{name}:{i}:reward", (name, i), REWARD) for name, i in shapes[-1]]
    dim, reward = hierarchy.dim, describe_reward(hierarchy.reward, hierarchy.actions.name)
    notes = [[Note(_title(level), describe_law(level, dim)) for level in row] for row in ranked]
    notes.append([Note("reward", reward)])
    column = _column_width([note for row in notes for note in row])
    half = _half_width(shapes, _room_beside(ranked, links))
    shapes.append({REWARD: _observed("reward")})
    rows, notes, bottom = _stack(shapes, notes, column + half, ROW_GAP + ARROW_GAP * len(links))
    arrows = route(links, rows)
    reward = rows[-1].nodes[REWARD]
    context = _observed("context")._replace(x=reward.x + CONTEXT, y=reward.y)
    ends = [(context.x - OBSERVED, context.y), (reward.x + OBSERVED, reward.y)]
    arrows.append(Arrow("arrow:context:reward", "plain", ends))
    nodes = [*(node for row in rows for node in row.nodes.values()), context]
    size = column + 2 * half + MARGIN, legend + MARGIN - bottom
    return Layout(nodes, place_texts(arrows, nodes), notes, *size)


def rows_by_rank(levels: Sequence[Level]) -> list[list[Level]]:
    """Levels by the longest path to them from a level without parents, in the order declared."""
    rank: dict[str, int] = {}
    for level in levels:
        rank[level.name] = max((rank[parent] + 1 for parent in level.parents or {}), default=0)
    return [[x for x in levels if rank[x.name] == r] for r in range(max(rank.values()) + 1)]


def _has_short_rows(ranked: list[list[Level]]) -> bool:
    return all(sum(level.size for level in row) <= MAX_ROW for row in ranked)


def _room_beside(ranked: list[list[Level]], links: list[Link]) -> list[float]:
    """What arrows that pass a row on their way, and their texts, may take beside it."""
    rank = {level.name: r for r, row in enumerate(ranked) for level in row} | {REWARD[0]: 0}
    spans = [(rank[link.tail[0]], rank[link.head[0]], measure(link.text) / 2) for link in links]
    rooms = [[text for tail, head, text in spans if tail < r < head] for r in range(len(ranked))]
    return [LANES + CLEARANCE + max(texts) if texts else 0.0 for texts in rooms]


def _vector_links(hierarchy: "Hierarchy") -> Iterator[Link]:
    """A link for each weight that is not zero or not known; matrices count by spectral norm."""
    for level in hierarchy.levels:
        for parent, arrows in level.arrows.items():
            indices, values = arrows.strengths(level.size, hierarchy[parent].size)
            for i, j in np.argwhere(values):
                k, weight = int(indices[i, j]), float(values[i, j])
                kind = "learned" if arrows.is_learned else "negative" if weight < 0 else "positive"
                gid = f"arrow:{parent}:{k}:{level.name}:{i}"
                strength = 0.0 if arrows.is_learned else abs(weight)
                yield Link(gid, (parent, k), (level.name, int(i)), kind, strength)


def _level_links(hierarchy: "Hierarchy") -> Iterator[Link]:
    for level in hierarchy.levels:
        for parent, arrows in level.arrows.items():
            gid, kind = f"arrow:{parent}:{level.name}", "learned" if arrows.is_learned else "plain"
            words = arrows.describe(hierarchy[parent].size)
            text = re.sub(r"\d{4,}", lambda digits: f"{int(digits[0]):,}", words)
            yield Link(gid, (parent, 0), (level.name, 0), kind, text=text)


def _circles(ranked: list[list[Level]]) -> list[dict[Key, Node]]:
    """A circle for each vector, in rows around zero."""
    slots = [sum(x.size for x in row) + BETWEEN_LEVELS * (len(row) - 1) for row in ranked]
    pitches = [min(PITCH, AREA / count) for count in slots]
    rows = []
    for row, count, pitch in zip(ranked, slots, pitches, strict=True):
        nodes, x, radius = {}, -pitch * (count - 1) / 2, min(RADIUS, 0.42 * pitch)
        for level in row:
            for i, lettering in enumerate(letter_level(level, radius, pitch)):
                gid = f"node:{level.name}:{i}"
                nodes[level.name, i] = Node(gid, "vector", x, 0.0, radius, radius, lettering)
                x += pitch
            x += BETWEEN_LEVELS * pitch
        rows.append(nodes)
    return rows


def _plates(ranked: list[list[Level]]) -> list[dict[Key, Node]]:
    """A plate for each level, in rows around zero."""
    rows = []
    for row in ranked:
        halves = [max(0.75, measure(_title(x), TITLE, "bold") / 2 + 0.2) for x in row]
        x, nodes = -sum(halves) - BETWEEN_PLATES * (len(row) - 1) / 2, {}
        for level, half in zip(row, halves, strict=True):
            x += half
            gid, text, sheets = f"plate:{level.name}", Lettering(_title(level), TITLE), 2
            plate = Node(gid, "plate", x, 0.0, half, PLATE_HEIGHT, text, sheets)
            nodes[level.name, 0] = plate if level.size > 1 else plate._replace(sheets=0)
            x += half + BETWEEN_PLATES
        rows.append(nodes)
    return rows


def _observed(name: str) -> Node:
    return Node(name, "observed", 0.0, 0.0, OBSERVED, OBSERVED, Lettering(name))


def _title(level: Level) -> str:
    return f"{level.name} × {level.size:,}"


def _column_width(notes: list[Note]) -> float:
    titles = [measure(note.title, TITLE, "bold") for note in notes]
    return 2.5 * MARGIN + max(titles + [measure(line) for note in notes for line in note.lines])


def _half_width(rows: list[dict[Key, Node]], rooms: list[float]) -> float:
    """Half of what the widest row takes, with the room beside it."""
    reaches = [max(abs(node.x) + node.reach for node in row.values()) for row in rows]
    return max(CONTEXT + OBSERVED, *map(sum, zip(reaches, rooms, strict=True)))


def _stack(
    shapes: list[dict[Key, Node]], notes: list[list[Note]], middle: float, gap: float
) -> tuple[list[Row], list[Note], float]:
    """Rows and their notes from top to bottom, and where they end."""
    rows, placed, edge = [], [], -MARGIN
    gaps = [0.0, *[gap] * (len(shapes) - 2), ROW_GAP]
    for nodes, beside, gap in zip(shapes, notes, gaps, strict=True):
        aside = sum(note.height for note in beside) / 2
        top = max(node.half_height + node.rise for node in nodes.values())
        above = max(top + max(n.lettering.height("above") for n in nodes.values()), aside)
        bottom = max(n.half_height + n.lettering.height("below") for n in nodes.values())
        y = edge - gap - above
        moved = {key: n._replace(x=n.x + middle, y=y) for key, n in nodes.items()}
        rows.append(Row(moved, y + top, y - bottom))
        edge, line = y - max(bottom, aside), y + aside
        for note in beside:
            placed.append(note._replace(y=line))
            line -= note.height
    return rows, placed, edge
