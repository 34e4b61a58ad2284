"""What the data say: posterior backends, exact and approximate, behind one interface."""

from .backend import Backend, Posterior
from .closed_form import ClosedForm
from .factored import Factored

__all__ = ["Backend", "ClosedForm", "Factored", "Posterior"]
