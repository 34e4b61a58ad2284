"""The figures of the paper (Aouali et al. 2023, Section 5 and Appendix F)."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...inference import ClosedForm, Factored, Laplace
from ...models import Bernoulli, Gaussian, Hierarchy
from ..policies.baselines import GLMTS, HierTS, LinTS
from ..policies.glm_ucb import UCBGLM
from ..policies.lin_ucb import LinUCB
from ..policies.policy import ThompsonSampling
from ..problems.movielens import MovieLensProblem
from ..problems.ratings import read_ratings
from ..problems.synthetic import SyntheticProblem
from ..simulation.run import told_truth
from .record import Figure, OfProblem, Panel, lower

__all__ = ["check_ratings", "paper_figures"]

ACTIONS, DIMS = (20, 50, 100), (2, 5)
CLICK_SECONDS = 6e-5  # a round of a policy that refits an action's likelihood


def exact(hierarchy: Hierarchy) -> ThompsonSampling:
    """meTS-Lin: the exact posterior (Section 3.2)."""
    return ThompsonSampling(ClosedForm(hierarchy))


def factored(hierarchy: Hierarchy) -> ThompsonSampling:
    """meTS-Lin-Fa and meTS-GLM-Fa: effects sampled individually (Appendix E.1)."""
    return ThompsonSampling(Factored(hierarchy))


def laplace(hierarchy: Hierarchy) -> ThompsonSampling:
    """meTS-GLM (Section 3.3)."""
    return ThompsonSampling(Laplace(hierarchy))


def as_if_linear(hierarchy: Hierarchy) -> ThompsonSampling:
    """meTS-Lin on clicks: they are taken for Gaussian rewards of noise 1."""
    return exact(Hierarchy(hierarchy.levels, Gaussian(1.0), hierarchy.dim))


def marginal_lints(problem: Any) -> ThompsonSampling:
    """LinTS on MovieLens: every movie has the mean and variance of all (Section 5.2)."""
    return LinTS(problem.unstructured)


def marginal_glmts(problem: Any) -> ThompsonSampling:
    """GLM-TS on MovieLens, likewise."""
    return GLMTS(problem.unstructured)


LINEAR = {
    "meTS-Lin": exact,
    "meTS-Lin-Fa": factored,
    "LinTS": LinTS,
    "HierTS": HierTS,
    "LinUCB": LinUCB,
}
LOGISTIC = {
    "meTS-GLM": laplace,
    "meTS-GLM-Fa": factored,
    "GLM-TS": GLMTS,
    "HierTS": HierTS,
    "UCB-GLM": UCBGLM,
    "meTS-Lin": as_if_linear,
}
MOVIELENS_LINEAR = LINEAR | {"LinTS": OfProblem(marginal_lints)}
MOVIELENS_LOGISTIC = {
    name: make
    for name, make in (LOGISTIC | {"GLM-TS": OfProblem(marginal_glmts)}).items()
    if name != "UCB-GLM"  # whose regret is very high, as the paper says
}
MISSPECIFIED = {
    "meTS-Lin": told_truth(exact),
    "meTS-Lin-mis": exact,
    "LinTS": told_truth(LinTS),
    "HierTS": told_truth(HierTS),
    "LinUCB": told_truth(LinUCB),
}

LINEAR_CLAIMS = lower(("meTS-Lin", "meTS-Lin-Fa"), ("LinTS", "HierTS", "LinUCB"))
MOVIELENS_LOGISTIC_CLAIMS = lower(("meTS-GLM", "meTS-GLM-Fa"), ("GLM-TS", "HierTS"))
LOGISTIC_CLAIMS = (
    *MOVIELENS_LOGISTIC_CLAIMS,
    *lower(("meTS-GLM", "meTS-GLM-Fa"), ("UCB-GLM",)),
    *lower(("meTS-GLM",), ("meTS-Lin",)),
)


def synthetic(clicks: bool, K: int, d: int, L: int = 3) -> Panel:
    """One of the twelve panels of Appendix F.1."""
    kind, reward = ("logistic", Bernoulli()) if clicks else ("linear", Gaussian(1.0))
    return Panel(
        f"{kind} K={K} L={L} d={d}",
        f"K = {K}, d = {d}",
        partial(SyntheticProblem, K, L, d, reward=reward),
        LOGISTIC if clicks else LINEAR,
        claims=LOGISTIC_CLAIMS if clicks else LINEAR_CLAIMS,
        round_seconds=CLICK_SECONDS if clicks else 1.5e-6,
    )


def movielens(ratings: Path | None, clicks: bool, K: int, d: int) -> Panel:
    """One of the twelve panels of Appendix F.2."""
    kind, reward = ("logistic", Bernoulli()) if clicks else ("linear", Gaussian(1.0))
    problem = partial(MovieLensProblem, ratings, num_actions=K, dim=d, reward=reward)
    return Panel(
        f"movielens {kind} K={K} d={d}",
        f"K = {K}, d = {d}",
        problem,
        MOVIELENS_LOGISTIC if clicks else MOVIELENS_LINEAR,
        claims=MOVIELENS_LOGISTIC_CLAIMS if clicks else LINEAR_CLAIMS,
        data=ratings,
        round_seconds=CLICK_SECONDS if clicks else 3e-6,
    )


def check_ratings(path: Path) -> None:
    """Refuse ratings that cannot be read, or are too few for the panels of Appendix F.2."""
    ratings = read_ratings(path)
    movies, users = len(ratings.movie_ids), len(ratings.user_ids)
    if movies < max(ACTIONS) or users < max(DIMS):
        raise ValueError(
            f"MovieLens ratings: '{path}' rates {movies} movies by {users} users; expected "
            f"{max(ACTIONS)} movies and {max(DIMS)} users at least, as a whole data set of GroupLens "
            "has: give its folder, or leave the path out to use the ratings that come with mixts"
        )


def misspecified(K: int) -> Panel:
    """One of the panels of Appendix F.3."""
    return Panel(
        f"misspecified K={K}",
        f"K = {K}",
        partial(SyntheticProblem, K, misspecified=True),
        MISSPECIFIED,
        claims=lower(("meTS-Lin", "meTS-Lin-mis"), ("LinTS", "HierTS", "LinUCB")),
    )


def uncertain(K: int) -> Panel:
    """One of the panels of Appendix F.4."""
    problem = partial(SyntheticProblem, K, effect_cov=1.0, action_cov=3.0)
    claims = lower(("meTS-Lin",), ("LinTS", "HierTS", "LinUCB"))
    return Panel(f"uncertain actions K={K}", f"K = {K}", problem, LINEAR, claims=claims)


def side_by_side(linear: Panel, logistic: Panel) -> tuple[Panel, ...]:
    """The two panels of a figure in the paper's body."""
    return replace(linear, title="linear rewards"), replace(logistic, title="logistic rewards")


def paper_figures(ratings: Path | None = None) -> tuple[Figure, ...]:
    """All of them, in the paper's order; `ratings` as `MovieLensProblem` takes it."""
    grid = [(K, d) for d in DIMS for K in ACTIONS]
    return (
        Figure(
            "synthetic",
            "Synthetic problems, K = 100, L = 3, d = 2",
            side_by_side(synthetic(False, 100, 2), synthetic(True, 100, 2)),
            columns=2,
            source="fig:synthetic_regret",
            says="meTS and its factored variant outperform all baselines that ignore the structure or "
            "incorporate it partially; meTS-GLM outperforms meTS-Lin in the logistic bandit.",
        ),
        Figure(
            "movielens",
            "MovieLens, K = 100, L = 5, d = 5",
            side_by_side(movielens(ratings, False, 100, 5), movielens(ratings, True, 100, 5)),
            columns=2,
            source="fig:movielens_regret",
            says="meTS has the lowest regret, even if the true rewards are not generated from a "
            "mixed-effect model.",
        ),
        Figure(
            "synthetic-linear",
            "Synthetic linear problems, L = 3",
            tuple(synthetic(False, K, d) for K, d in grid),
            columns=3,
            source="fig:app_synthetic_regret_lin",
            says="meTS-Lin and its factored variant outperform the others in all experiments; the gain "
            "becomes smaller when K / L decreases.",
        ),
        Figure(
            "synthetic-logistic",
            "Synthetic logistic problems, L = 3",
            tuple(synthetic(True, K, d) for K, d in grid),
            columns=3,
            source="fig:app_synthetic_regret_log",
            says="meTS-GLM and its factored variant outperform the others in all experiments; the gain "
            "becomes smaller when K / L decreases.",
        ),
        Figure(
            "movielens-linear",
            "MovieLens with linear rewards, L = 5",
            tuple(movielens(ratings, False, K, d) for K, d in grid),
            columns=3,
            source="fig:app_movielens_regret_lin",
            says="meTS outperforms the other baselines; the gap is less significant when K / L is small.",
        ),
        Figure(
            "movielens-logistic",
            "MovieLens with logistic rewards, L = 5",
            tuple(movielens(ratings, True, K, d) for K, d in grid),
            columns=3,
            source="fig:app_movielens_regret_log",
            says="meTS outperforms the other baselines; the gap is less significant when K / L is small.",
        ),
        Figure(
            "misspecified",
            "Wrong hyper-parameters for meTS alone, L = 3, d = 2",
            tuple(misspecified(K) for K in ACTIONS),
            columns=3,
            source="fig:misspecified_synthetic_regret",
            says="The baselines know the true hyper-parameters; misspecified meTS-Lin still performs "
            "better than they do, and similarly to meTS-Lin with the true ones.",
        ),
        Figure(
            "uncertain-actions",
            "Actions more uncertain than effects, L = 3, d = 2",
            tuple(uncertain(K) for K in ACTIONS),
            columns=3,
            source="fig:uncertain_synthetic_regret",
            says="meTS-Lin still outperforms the baselines, but the gap shrinks.",
        ),
    )
