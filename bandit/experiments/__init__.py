"""The paper's experiments as data, and what plays them: `mixts reproduce`."""

from .pieces import Piece
from .record import Bound, Claim, Figure, OfProblem, Panel, Size, lower
from .reproduction import all_figures, reproduce
from .result import Line, Result

__all__ = [
    "Bound",
    "Claim",
    "Figure",
    "Line",
    "OfProblem",
    "Panel",
    "Piece",
    "Result",
    "Size",
    "all_figures",
    "lower",
    "reproduce",
]
