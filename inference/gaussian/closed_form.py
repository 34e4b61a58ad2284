"""`ClosedForm`: the exact posterior of a linear-Gaussian hierarchy of any depth."""

from typing import Any

import jax.numpy as jnp

from ...models import Hierarchy
from ...models.messages import listed, short
from .backend import GaussianBackend
from .block_levels import in_blocks, tree_levels
from .drift import drifts_above
from .levels import Levels
from .messages import ExactMessages, RewardMessages

__all__ = ["ClosedForm", "check_hierarchy", "check_joint_fits", "check_linear_gaussian"]

# The joint covariance of the levels that are not kept in blocks may take this much memory.
_MOST_JOINT_BYTES = 2 * 1024**3


class ClosedForm(GaussianBackend):
    """The exact posterior (Aouali et al. 2023, Propositions 1 and 2).

    For every hierarchy with `hierarchy.why_not_exact` None: any depth, crossed parents, matrix and
    sparse weights, correlated effects. With K actions, N numbers in the levels above and d
    dimensions, a state takes O(K d^2 + N^2) memory, `update` O(d^2 + N^2) time, `sample_scores`
    O(K d^2 + N^2), `condition` on n observations O(n d^2 + min(n, K d) N^2). Wide priors and collinear
    effects are right in float32: with variances of 1e6 means are within 0.001 standard deviations of
    those in float64.

    Levels that are a tree, in which every vector has one parent at most, are not among these N numbers:
    they are kept in blocks of d x d, as the actions are, and `update` costs O(d^2) for each of them. So a
    catalogue of a million products below departments, categories and subcategories is exact too.

    Levels may drift (`Level(drift=...)`): `advance` says that time has passed. Where the actions alone
    do, it costs O(K d^3); where a level above does, everything is kept jointly (see `drift`).

    Example:
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> backend = ClosedForm(linear([[1.0, 0.0], [0.5, 0.5]], dim=1))
        >>> state = backend.update(backend.init(), context=[1.0], action=0, reward=3.0)
        >>> float(backend.posterior(state).mean["action"][0, 0])
        2.0
    """

    hierarchy: Hierarchy
    messages: RewardMessages
    levels: Levels

    def __init__(self, hierarchy: Hierarchy):
        check_linear_gaussian(hierarchy, "ClosedForm")
        check_joint_fits(hierarchy, "ClosedForm", in_blocks(hierarchy))
        self.hierarchy = hierarchy
        self.messages = ExactMessages()
        self.levels = tree_levels(hierarchy)

    def __repr__(self) -> str:
        return f"ClosedForm({self.hierarchy!r})"


def check_hierarchy(hierarchy: Any, backend: str) -> None:
    """Refuse what is not a hierarchy."""
    if not isinstance(hierarchy, Hierarchy):
        raise TypeError(f"{backend}: got {short(hierarchy)}; expected a Hierarchy")


def check_linear_gaussian(hierarchy: Hierarchy, backend: str) -> None:
    """Refuse a hierarchy without a closed form."""
    check_hierarchy(hierarchy, backend)
    if hierarchy.why_not_exact is not None:
        raise ValueError(f"{backend} needs a linear-Gaussian hierarchy: {hierarchy.why_not_exact}")


def check_joint_fits(hierarchy: Hierarchy, backend: str, blocks: int = 0) -> None:
    """Refuse a hierarchy whose levels above the actions are too many for a joint covariance.

    The last `blocks` of them are kept in blocks, which take no more memory than the actions.
    """
    actions_too = drifts_above(hierarchy)
    above = hierarchy.levels[: len(hierarchy.levels) - 1 - blocks + actions_too]
    vectors = sum(level.size for level in above)
    numbers = vectors * hierarchy.dim
    memory = numbers**2 * jnp.result_type(float).itemsize
    if memory > _MOST_JOINT_BYTES:
        two_levels = all(not level.parents for level in hierarchy.levels[:-1])
        if actions_too:
            raise ValueError(
                f"{backend}: a level above the actions drifts, so that everything is kept jointly, "
                f"{numbers:,} numbers, which takes {memory / 1024**3:,.1f} GiB; at most "
                f"{_MOST_JOINT_BYTES / 1024**3:g} GiB are allowed: declare drift for the actions alone, "
                "which stay in blocks, or forget instead"
            )
        fits = "Factored with means='decoupled'" if two_levels else "Svi with a mean-field guide"
        raise ValueError(
            f"{backend} keeps the joint covariance of {listed(level.name for level in above)}, {vectors:,} "
            f"vectors x {hierarchy.dim} = {numbers:,} numbers, which takes {memory / 1024**3:,.1f} GiB; "
            f"at most {_MOST_JOINT_BYTES / 1024**3:g} GiB are allowed: use {fits}, or declare one parent "
            "for each vector, as in a tree"
        )
