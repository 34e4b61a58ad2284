"""The look of all pictures of mixts: lines differ in colour, dashes and markers.

`plt.style.use(STYLE)` gives a picture of one's own the same look.
"""

import io
from typing import Any

from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "DASHES",
    "INK",
    "MARKERS",
    "SAVED",
    "STYLE",
    "Picture",
    "bare",
    "blank",
    "one_line",
]

# Okabe and Ito's colours, which colour-blind readers can distinguish; in grey, dashes and markers differ.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "X", "P")
INK = "#222222"
SAVED: dict[str, Any] = {"dpi": 200, "facecolor": "white", "transparent": False}

STYLE: dict[str, Any] = {
    "axes.prop_cycle": cycler(color=COLOURS) + cycler(linestyle=DASHES),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "legend.frameon": False,
    "legend.handlelength": 3.5,
}


class Picture(Figure):
    """A figure that notebooks show without pyplot, which keeps every figure it makes in memory."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", **SAVED)
        width, height = (round(100 * inches) for inches in self.get_size_inches())
        return buffer.getvalue(), {"width": width, "height": height}


def blank(width: float, height: float, *, arranged: bool = True) -> Picture:
    """An empty picture, in inches, whose parts matplotlib arranges, whatever a user's settings are."""
    figure = Picture(figsize=(width, height), dpi=100, facecolor="white")
    figure.set_layout_engine("constrained" if arranged else "none")
    FigureCanvasAgg(figure)
    return figure


def bare(axes: Axes, *sides: str) -> None:
    """Take away the frame at the top, at the right and at any other sides."""
    axes.spines[["top", "right", *sides]].set_visible(False)


def one_line(name: str, most: int = 40) -> str:
    """A name in one line that leaves room for the picture; what does not fit becomes an ellipsis."""
    name = " ".join(name.split())
    return name if len(name) <= most else f"{name[: most - 1]}…"
