"""Pictures of hierarchies as graphical models, drawn with matplotlib."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Polygon
from matplotlib.text import Text

from ..arrays import is_concrete
from ..picture import look
from .layout import MARGIN, Layout, lay_out
from .lettering import BODY, FONT, GAP, LINE, SMALLEST, TITLE
from .look import INK, SAVED
from .routes import SHEET, Arrow, Node, Point, along

if TYPE_CHECKING:
    from ..hierarchy import Hierarchy

__all__ = ["render"]

LATENT, OBSERVED = "#eef5fa", "#d4d4d4"
# The kind of an arrow -> its colour, its dashes, and its meaning in the legend.
STROKES: dict[str, tuple[str, Any, str]] = {
    "positive": (look.COLOURS[0], "solid", "weight (thicker: larger)"),
    "negative": (look.COLOURS[1], (0, (4.0, 2.0)), "negative weight"),
    "learned": (INK, (0, (1.0, 1.5)), "learned weight"),
    "plain": (INK, "solid", ""),
}
OUTLINE: dict[str, Any] = {"edgecolor": INK, "linewidth": 1.0, "zorder": 3}
SUFFIXES = (".png", ".svg", ".pdf")


def render(hierarchy: "Hierarchy", path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw the graphical model of a hierarchy, and save it if `path` is given (.png, .svg or .pdf).

    Levels run from top to bottom, down to the reward. With up to a dozen vectors a level there is a
    circle for each, and an arrow for each weight that is not zero, thicker and darker where it is
    larger (a matrix: in spectral norm); a missing arrow is a zero weight. A larger hierarchy has a
    plate for each level, and an arrow for each parent.

    Every artist that stands for a part of the model has a gid, which svg files keep as an id:
    `node:movie:3`, `arrow:genre:0:movie:3`; or `plate:movie`, `arrow:genre:movie`.
    """
    target = None if path is None else _checked(Path(path))
    _check_drawable(hierarchy)
    layout = lay_out(hierarchy)
    figure = look.blank(layout.width, layout.height, arranged=False)  # everything has its place
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), frameon=False)
    axes.set(xlim=(0.0, layout.width), ylim=(-layout.height, 0.0), xticks=[], yticks=[])
    _draw(axes, layout)
    if target is not None:
        figure.savefig(target, **SAVED)
    return figure


def _checked(path: Path) -> Path:
    if path.suffix.lower() not in SUFFIXES:
        given = f"the suffix '{path.suffix}'" if path.suffix else "no suffix"
        raise ValueError(
            f"render: path '{path}' has {given}; expected one of {', '.join(SUFFIXES)}: write for "
            f"instance '{path.with_suffix('.png')}'"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"render: path '{path}' is in the folder '{path.parent}', which does not exist; "
            "expected an existing one: create it first, or save elsewhere"
        )
    return path


def _check_drawable(hierarchy: "Hierarchy") -> None:
    if not is_concrete(hierarchy):
        raise ValueError(
            "render: this hierarchy is traced (inside jit or vmap), so that its weights have no "
            "values yet; expected concrete numbers: return the hierarchy, and render it outside"
        )
    for level in hierarchy.levels:
        for parent, arrows in level.arrows.items():
            if not arrows.is_learned and len(arrows.shape) not in (2, 4):
                raise ValueError(
                    f"render: level '{level.name}': weights for parent '{parent}' have shape "
                    f"{arrows.shape}, as of many hierarchies stacked by vmap; expected one: take "
                    "jax.tree.map(lambda leaf: leaf[0], hierarchy)"
                )


def _draw(axes: Axes, layout: Layout) -> None:
    for arrow in sorted(layout.arrows, key=lambda arrow: arrow.strength):
        _draw_arrow(axes, arrow)
    for node in layout.nodes:
        _draw_node(axes, node)
    for note in layout.notes:
        _write(axes, MARGIN, note.y, note.title, TITLE, va="top", weight="bold")
        for number, line in enumerate(note.lines, start=1):
            _write(axes, MARGIN, note.y - number * LINE, line, va="top")
    kinds = {arrow.kind for arrow in layout.arrows if not arrow.text} - {"plain"}
    if kinds:
        _draw_legend(axes, layout, kinds)


def _draw_arrow(axes: Axes, arrow: Arrow) -> None:
    colour, dashes, _ = STROKES[arrow.kind]
    colour, width = _shade(colour, arrow.strength), 0.7 + 1.6 * arrow.strength
    shaft, head = _shaft_and_head(arrow.points, length=0.07 + 0.02 * width)
    stroke: dict[str, Any] = {"color": colour, "linewidth": width, "linestyle": dashes}
    line = Line2D(*np.transpose(shaft), dash_capstyle="butt", gid=arrow.gid, zorder=1, **stroke)
    axes.add_line(line)
    axes.add_patch(Polygon(head, facecolor=colour, linewidth=0.0, zorder=1))
    if arrow.text:
        text = _write(axes, *arrow.text_at, arrow.text, ha="center", va="center", zorder=2)
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.5})


def _shaft_and_head(points: list[Point], length: float) -> tuple[list[Point], np.ndarray]:
    """A line cut short, and the triangle that takes its end: a dashed one would have no outline."""
    tip = np.asarray(points[-1])
    whole = np.hypot(*np.diff(points, axis=0).T).sum()
    base = along(points, [1.0 - length / whole])[0]
    side = 0.4 * (tip - base)[::-1] * (1.0, -1.0)
    kept = [point for point in points[:-1] if np.hypot(*(tip - point)) > length]
    return [*kept, tuple(base)], np.stack([tip, base + side, base - side])


def _shade(colour: str, strength: float) -> tuple[float, ...]:
    """The colour, paler where the arrow is weaker, but never too pale to see."""
    amount = 0.45 + 0.55 * strength
    return tuple(1.0 - amount * (1.0 - channel) for channel in to_rgb(colour))


def _draw_node(axes: Axes, node: Node) -> None:
    if node.kind == "plate":
        width, height = 2 * node.half_width, 2 * node.half_height
        box: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.08", "facecolor": LATENT}
        for shift in SHEET * np.arange(node.sheets, -1, -1):
            corner = node.x - node.half_width + shift, node.y - node.half_height + shift
            gid = None if shift else node.gid
            axes.add_patch(FancyBboxPatch(corner, width, height, gid=gid, **box, **OUTLINE))
    else:
        fill = OBSERVED if node.kind == "observed" else LATENT
        centre, radius = (node.x, node.y), node.half_height
        axes.add_patch(Circle(centre, radius, facecolor=fill, gid=node.gid, **OUTLINE))
    text, size, place = node.lettering
    away, va = {"inside": (0, "center"), "above": (1, "bottom"), "below": (-1, "top")}[place]
    weight = "bold" if node.kind == "plate" else "normal"
    y = node.y + away * (node.half_height + GAP)
    _write(axes, node.x, y, text, size, ha="center", va=va, weight=weight)


def _draw_legend(axes: Axes, layout: Layout, kinds: set[str]) -> None:
    """What the strokes mean, in one line below the picture."""
    strokes = [
        Line2D([], [], color=colour, linestyle=dashes, linewidth=1.6, label=meaning)
        for kind, (colour, dashes, meaning) in STROKES.items()
        if kind in kinds
    ]
    place = {"loc": "lower left", "bbox_to_anchor": (MARGIN, 0.5 * MARGIN - layout.height)}
    place |= {"bbox_transform": axes.transData, "borderaxespad": 0.0, "borderpad": 0.0}
    look = {"frameon": False, "handlelength": 2.6, "labelcolor": INK, "ncols": len(strokes)}
    axes.legend(handles=strokes, prop={"family": FONT, "size": SMALLEST}, **place, **look)


def _write(axes: Axes, x: float, y: float, text: str, size: float = BODY, **style: Any) -> Text:
    style = {"zorder": 4, "color": INK, "family": FONT, "usetex": False} | style
    return axes.text(x, y, text, fontsize=size, **style)
