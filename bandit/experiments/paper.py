"""The figures of the paper (Aouali et al. 2023, Section 5 and Appendix F)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...inference import Backend, ClosedForm, ExpectationPropagation, Factored, Laplace
from ...models import Bernoulli, Gaussian, Hierarchy
from ..policies.baselines import GLMTS, HierTS, LinTS
from ..policies.glm_ucb import UCBGLM
from ..policies.lin_ucb import LinUCB
from ..policies.policy import Policy, ThompsonSampling
from ..problems.movielens import MovieLensProblem
from ..problems.ratings import read_ratings
from ..problems.synthetic import SyntheticProblem
from ..simulation.run import Maker, told_truth
from .record import Claim, Figure, OfProblem, Panel, lower

__all__ = ["by_size", "check_ratings", "exact", "factored", "laplace", "paper_figures", "synthetic"]

ACTIONS, DIMS = (20, 50, 100), (2, 5)
CLICK_SECONDS = 6e-5  # a round of a policy that refits an action's likelihood


def thompson(backend: Callable[..., Backend[Any]], hierarchy: Hierarchy) -> ThompsonSampling:
    """MeTS with the posterior of a backend."""
    return ThompsonSampling(backend(hierarchy))


# meTS-Lin (Section 3.2), meTS-GLM (Section 3.3), and both with effects sampled individually (Appendix E.1).
exact, laplace, factored = (partial(thompson, kind) for kind in (ClosedForm, Laplace, Factored))

# Not in the paper: meTS with moments matched reward by reward, which keeps no rewards.
propagated = partial(thompson, ExpectationPropagation)


def as_if_linear(hierarchy: Hierarchy) -> ThompsonSampling:
    """meTS-Lin on clicks, which it treats as Gaussian rewards of noise 1."""
    return exact(hierarchy.remade(reward=Gaussian(1.0)))


def marginal(policy: Maker, problem: Any) -> Policy[Any]:
    """LinTS or GLM-TS on MovieLens: every movie has the mean and variance of all (Section 5.2)."""
    return policy(problem.unstructured)


BASELINES = {"LinTS": LinTS, "HierTS": HierTS, "LinUCB": LinUCB}
LINEAR = {"meTS-Lin": exact, "meTS-Lin-Fa": factored, **BASELINES}
LOGISTIC = {
    "meTS-GLM": laplace,
    "meTS-GLM-Fa": factored,
    "meTS-EP": propagated,
    "GLM-TS": GLMTS,
    "HierTS": HierTS,
    "UCB-GLM": UCBGLM,
    "meTS-Lin": as_if_linear,
}
MOVIELENS_LINEAR = LINEAR | {"LinTS": OfProblem(partial(marginal, LinTS))}
MOVIELENS_LOGISTIC = LOGISTIC | {"GLM-TS": OfProblem(partial(marginal, GLMTS))}
del MOVIELENS_LOGISTIC["UCB-GLM"]  # its regret is very high, as the paper says
MISSPECIFIED = {"meTS-Lin": told_truth(exact), "meTS-Lin-mis": exact} | {
    name: told_truth(make) for name, make in BASELINES.items()
}

LINEAR_CLAIMS = lower(("meTS-Lin", "meTS-Lin-Fa"), BASELINES)
CLAIMS = lower(("meTS-Lin",), BASELINES)
METS_CLICKS = "meTS-GLM", "meTS-GLM-Fa", "meTS-EP"
MOVIELENS_LOGISTIC_CLAIMS = lower(METS_CLICKS, ("GLM-TS", "HierTS"))
LOGISTIC_CLAIMS = (
    *MOVIELENS_LOGISTIC_CLAIMS,
    *lower(METS_CLICKS, ("UCB-GLM",)),
    *lower(("meTS-GLM", "meTS-EP"), ("meTS-Lin",)),
    *lower(("meTS-EP",), ("meTS-GLM",)),
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


def movielens(clicks: bool, K: int, d: int, ratings: Path | None) -> Panel:
    """One of the twelve panels of Appendix F.2."""
    kind, reward = ("logistic", Bernoulli()) if clicks else ("linear", Gaussian(1.0))
    return Panel(
        f"movielens {kind} K={K} d={d}",
        f"K = {K}, d = {d}",
        partial(MovieLensProblem, ratings, num_actions=K, dim=d, reward=reward),
        MOVIELENS_LOGISTIC if clicks else MOVIELENS_LINEAR,
        claims=MOVIELENS_LOGISTIC_CLAIMS if clicks else LINEAR_CLAIMS,
        data=ratings,
        round_seconds=CLICK_SECONDS if clicks else 3e-6,
    )


def both_rewards(panel: Callable[..., Panel], K: int, d: int) -> tuple[Panel, ...]:
    """The two panels of a figure in the paper's body."""
    titles = "linear rewards", "logistic rewards"
    return tuple(replace(panel(clicks, K, d), title=titles[clicks]) for clicks in (False, True))


def all_sizes(panel: Callable[..., Panel], clicks: bool) -> tuple[Panel, ...]:
    """The six panels of a figure in the appendix."""
    return tuple(panel(clicks, K, d) for d in DIMS for K in ACTIONS)


def by_size(
    name: str, policies: Mapping[str, Maker], claims: tuple[Claim, ...], **problem: Any
) -> tuple[Panel, ...]:
    """The synthetic problem with these arguments, a panel for each number of actions."""
    problems = {K: partial(SyntheticProblem, K, **problem) for K in ACTIONS}
    panel = partial(Panel, policies=policies, claims=claims)
    return tuple(panel(f"{name} K={K}", f"K = {K}", problems[K]) for K in ACTIONS)


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


def paper_figures(ratings: Path | None = None) -> tuple[Figure, ...]:
    """All of them, in the paper's order; `ratings` as in `MovieLensProblem`."""
    movies = partial(movielens, ratings=ratings)
    misspecified_claims = lower(("meTS-Lin", "meTS-Lin-mis"), BASELINES)
    return (
        Figure(
            "synthetic",
            "Synthetic problems, K = 100, L = 3, d = 2",
            both_rewards(synthetic, 100, 2),
            columns=2,
            source="Figure 2",
            says="meTS and its factored variant outperform all baselines that ignore the structure or "
            "incorporate it partially; meTS-GLM outperforms meTS-Lin in the logistic bandit.",
        ),
        Figure(
            "movielens",
            "MovieLens, K = 100, L = 5, d = 5",
            both_rewards(movies, 100, 5),
            columns=2,
            source="Figure 3",
            says="meTS has the lowest regret, even if the true rewards are not generated from a "
            "mixed-effect model.",
        ),
        *(
            Figure(
                f"synthetic-{kind}",
                f"Synthetic {kind} problems, L = 3",
                all_sizes(synthetic, clicks),
                source=f"Figure {4 + clicks}",
                says=f"{policy} and its factored variant outperform the others in all experiments; the "
                "gain becomes smaller when K / L decreases.",
            )
            for kind, policy, clicks in (
                ("linear", "meTS-Lin", False),
                ("logistic", "meTS-GLM", True),
            )
        ),
        *(
            Figure(
                f"movielens-{kind}",
                f"MovieLens with {kind} rewards, L = 5",
                all_sizes(movies, clicks),
                source=f"Figure {6 + clicks}",
                says="meTS outperforms the other baselines; the gap is less significant when K / L is "
                "small.",
            )
            for kind, clicks in (("linear", False), ("logistic", True))
        ),
        Figure(
            "misspecified",
            "Wrong hyper-parameters for meTS alone, L = 3, d = 2",
            by_size("misspecified", MISSPECIFIED, misspecified_claims, misspecified=True),
            source="Figure 8",
            says="The baselines know the true hyper-parameters; misspecified meTS-Lin still performs "
            "better than they do, and similarly to meTS-Lin with the true ones.",
        ),
        Figure(
            "uncertain-actions",
            "Actions more uncertain than effects, L = 3, d = 2",
            by_size("uncertain actions", LINEAR, CLAIMS, effect_cov=1.0, action_cov=3.0),
            source="Figure 9",
            says="meTS-Lin still outperforms the baselines, but the gap shrinks.",
        ),
    )
