"""The search of `empirical_bayes` where rewards are not Gaussian: the evidence of matched messages.

Each evaluation sweeps over the rows until their messages agree. The slope is that with the messages held
fixed (see `propagated_evidence`), so nothing is differentiated through a sweep. What the law of rewards
declares as unknown, such as cut points, is varied with the rest.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from ...models import Data, Hierarchy
from ..gaussian.evidence import log_density_of_rewards
from ..gaussian.messages import Seen
from ..gaussian.propagated_evidence import Agreed, agreed_messages, as_statistics, log_shares
from ..gaussian.sufficient_statistics import no_rewards
from .declared_unknowns import DeclaredUnknowns
from .free_numbers import FreeNumbers, with_values
from .parts import Part
from .search import Point, Search, best_multiple, one_unit

__all__ = ["PropagatedSearch", "start_propagated"]

_PRECISION = 1e-12


class PropagatedSearch(Search):
    """The log evidence of expectation propagation as a function of free numbers.

    Args:
        numbers: the free numbers of a hierarchy whose rewards' law is log-concave.
        seen: the rows.
    """

    def __init__(self, numbers: FreeNumbers, seen: Seen):
        super().__init__(numbers, no_rewards(numbers.levels[-1].size, len(numbers.units)))
        self.seen = seen

    def declaration(self, vector: np.ndarray) -> Hierarchy | None:
        """The known hierarchy that free numbers stand for, or None where there is none."""
        free = self.unravel(jnp.asarray(self.widened(vector, _PRECISION)))
        sites = jax.tree.map(np.asarray, self.numbers.sites(free))
        return with_values(self.numbers.unknowns.hierarchy, sites, self.numbers.known(free))

    def at(self, vector: np.ndarray, steps: int = 0) -> Point:
        """The evidence at some free numbers; infinitely bad where no messages agree."""
        vector = np.asarray(vector)
        nowhere = Point(vector, np.inf, np.zeros_like(vector), steps)
        known = self.declaration(vector) if np.isfinite(vector).all() else None
        if known is None:
            return nowhere
        agreed = agreed_messages(known, self.seen)
        if not bool(agreed.settled):
            return nowhere
        found = _loss_and_slope(jnp.asarray(vector), self.numbers, agreed, self.seen)
        return Point(vector, float(found[0]), np.asarray(found[1]), steps)


@jax.jit
def _loss_and_slope(
    vector: Array, numbers: FreeNumbers, agreed: Agreed, seen: Seen
) -> tuple[Array, Array]:
    def loss(vector: Array) -> Array:
        _, unravel = ravel_pytree(numbers.declared())
        free = unravel(vector)
        levels, _ = numbers.at(free)
        statistics, scales = as_statistics(agreed, seen, levels[-1].size)
        unit = jnp.ones((), vector.dtype)
        gaussian = scales + log_density_of_rewards(levels, unit, statistics)
        shares = log_shares(numbers.reward(free), agreed, seen)
        return -gaussian - shares - numbers.log_prior(free)

    return jax.value_and_grad(loss)(vector)


def start_propagated(
    unknowns: DeclaredUnknowns, data: Data, parts: tuple[Part, ...]
) -> tuple[PropagatedSearch, Point, np.ndarray]:
    """The problem in units of the contexts, a start, and how large steps from it should be.

    Spreads and weights start one by one at the best of several orders of magnitude, means where they
    were declared.
    """
    contexts, rewards = (jnp.asarray(np.asarray(p), float) for p in (data.contexts, data.rewards))
    given: Any = data.exposure
    exposure = None if given is None else jnp.asarray(np.asarray(given), float)
    actions = jnp.asarray(np.asarray(data.actions), jnp.int32)
    seen = Seen(contexts, actions, rewards, jnp.ones(len(actions), bool), exposure)
    sizes = np.sqrt(np.square(np.asarray(contexts)).sum(0) / max(len(actions), 1))
    units = 1.0 / np.where(sizes > 0, sizes, 1.0)
    search = PropagatedSearch(FreeNumbers.of(unknowns, parts, 1.0, units), seen)
    vector = search.declared.copy()
    for part in search.places:
        if part.is_spread:
            vector = search.with_part(vector, part, one_unit(search.shaped(vector, part)))
    point = search.at(vector)
    for part in search.places:
        if part.what in ("cov", "weights"):
            point = best_multiple(search, point, part)
    scales = np.ones_like(vector)
    for part, place in search.places.items():
        if part.what in ("cov", "weights"):
            scales[place] = np.abs(point.vector[place]).max()
    return search, point, scales
