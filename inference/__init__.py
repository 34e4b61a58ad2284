"""What the data say: posterior backends, exact and approximate, behind one interface."""

from .backend import Backend, Posterior
from .calibration import Calibration, calibrate
from .choice import Choice, best_backend
from .closed_form import ClosedForm
from .comparison import Comparison, compare
from .evidence import EmpiricalBayes, EmpiricalBayesStatus, empirical_bayes, log_evidence
from .factored import Factored
from .laplace import Laplace
from .nuts import Nuts, NutsStatus
from .posterior_plot import plot_forest, plot_learning
from .svi import Svi, SviStatus

__all__ = [
    "Backend",
    "Calibration",
    "Choice",
    "ClosedForm",
    "Comparison",
    "EmpiricalBayes",
    "EmpiricalBayesStatus",
    "Factored",
    "Laplace",
    "Nuts",
    "NutsStatus",
    "Posterior",
    "Svi",
    "SviStatus",
    "best_backend",
    "calibrate",
    "compare",
    "empirical_bayes",
    "log_evidence",
    "plot_forest",
    "plot_learning",
]
