"""Posteriors given data: backends, exact and approximate, behind one interface."""

from .backend import Backend, Posterior
from .choice import Choice, best_backend
from .cost import Cost
from .gaussian.closed_form import ClosedForm
from .gaussian.expectation_propagation import ExpectationPropagation
from .gaussian.factored import Factored
from .gaussian.laplace import Laplace
from .judging.calibration import Calibration, calibrate
from .judging.comparison import Comparison, compare
from .judging.empirical_bayes import EmpiricalBayes, empirical_bayes
from .judging.evidence import log_evidence
from .judging.leave_one_out import LeaveOneOut, leave_one_out
from .mixture.collapsed import Collapsed
from .mixture.hierarchies import HierarchyComparison, Mixture, compare_hierarchies
from .plots.posterior import plot_forest, plot_learning
from .programs.by_hand import Program
from .programs.nuts import Nuts
from .programs.svi import Svi
from .sharding import over_devices
from .status import Status, Trouble, TroubleWarning

__all__ = [
    "Backend",
    "Calibration",
    "Choice",
    "ClosedForm",
    "Collapsed",
    "Comparison",
    "Cost",
    "EmpiricalBayes",
    "ExpectationPropagation",
    "Factored",
    "HierarchyComparison",
    "Laplace",
    "LeaveOneOut",
    "Mixture",
    "Nuts",
    "Posterior",
    "Program",
    "Status",
    "Svi",
    "Trouble",
    "TroubleWarning",
    "best_backend",
    "calibrate",
    "compare",
    "compare_hierarchies",
    "empirical_bayes",
    "leave_one_out",
    "log_evidence",
    "over_devices",
    "plot_forest",
    "plot_learning",
]
