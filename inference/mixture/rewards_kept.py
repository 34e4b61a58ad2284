"""What is kept of the rewards: all that the evidence of unknown numbers, and a posterior given them, need.

Where rewards are Gaussian these are sums that do not depend on what is unknown, and do not grow
(`KeptSums`). Of other laws every row matters anew for each value of the unknown numbers: the messages that
stand for rewards are matched under them. Rows go into a buffer (`KeptRows`).
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...models import Hierarchy
from ..buffer import Buffer, empty, record, reserve
from ..gaussian.backend import GaussianBackend
from ..gaussian.closed_form import ClosedForm
from ..gaussian.evidence import gaussian_levels, log_density_of_rewards
from ..gaussian.expectation_propagation import ExpectationPropagation
from ..gaussian.messages import GaussianState
from ..gaussian.reduction import weighed_rows
from ..gaussian.sufficient_statistics import RewardStatistics, add_rewards, no_rewards
from ..observation import PADDING, can_be_used, num_rejected

__all__ = ["KeptRewards", "KeptRows", "KeptSums"]


class KeptRewards(eqx.Module):
    """A way to keep rewards, and the backend for a hierarchy without unknown numbers."""

    @abstractmethod
    def init(self, hierarchy: Hierarchy, room: int) -> Any:
        """What is kept before any reward, with room for so many where rows are kept."""

    @abstractmethod
    def add(self, hierarchy: Hierarchy, kept: Any, rows: tuple[Any, ...]) -> tuple[Any, Array]:
        """With more rows (contexts, actions, rewards, exposure); also how many could not be used."""

    @abstractmethod
    def backend(self, known: Hierarchy) -> GaussianBackend:
        """The backend given the numbers."""

    @abstractmethod
    def state(self, known: Hierarchy, kept: Any) -> GaussianState:
        """Its state after all rewards."""

    @abstractmethod
    def log_evidence(self, known: Hierarchy, kept: Any) -> Float[Array, ""]:
        """The log density of all rewards, vectors integrated out, up to what no number changes."""

    def reserve(self, kept: Any, more: int) -> Any:
        """The same with room for more rows."""
        return kept

    def of_all_actions(self, kept: Any) -> Any:
        """The same, where what is kept of new actions was put beside what is kept of the others."""
        return kept

    @property
    def can_forget(self) -> bool:
        """Whether all evidence so far can be discounted."""
        return False

    def forget(self, kept: Any, factor: Float[Array, ""]) -> Any:
        """With all evidence multiplied by a factor."""
        return kept


class KeptSums(KeptRewards):
    """Gaussian rewards: by action the sums of `x x'`, `x y` and `y^2`, as square roots, and their number.

    A row that stands for `m` rewards is one of the noise of a single reward, times `sqrt(m)`.
    """

    def init(self, hierarchy: Hierarchy, room: int) -> RewardStatistics:
        sums = no_rewards(hierarchy.num_actions, hierarchy.dim)
        return sums._replace(num_rewards=jnp.zeros((), sums.factors.dtype))

    def add(
        self, hierarchy: Hierarchy, kept: RewardStatistics, rows: tuple[Any, ...]
    ) -> tuple[RewardStatistics, Array]:
        contexts, actions, rewards, exposure = rows
        K = hierarchy.num_actions
        valid = can_be_used(contexts, actions, rewards, K, exposure)
        contexts, rewards = jnp.where(valid[:, None], contexts, 0.0), jnp.where(valid, rewards, 0.0)
        exposure = None if exposure is None else jnp.where(valid, exposure, 1.0)
        sound, _ = weighed_rows(contexts, jnp.where(valid, actions, K), rewards, exposure)
        return add_rewards(kept, *sound), num_rejected(actions, valid)

    def backend(self, known: Hierarchy) -> GaussianBackend:
        return ClosedForm(known)

    def state(self, known: Hierarchy, kept: RewardStatistics) -> GaussianState:
        d = known.dim
        backend = self.backend(known)
        contexts = kept.contexts.reshape(-1, d)
        return backend.condition(
            backend.init(), contexts, jnp.repeat(kept.actions, d), kept.rewards.ravel()
        )

    def log_evidence(self, known: Hierarchy, kept: RewardStatistics) -> Float[Array, ""]:
        noise = jnp.asarray(getattr(known.reward, "noise", 1.0))
        return log_density_of_rewards(gaussian_levels(known), noise, kept)

    def of_all_actions(self, kept: RewardStatistics) -> RewardStatistics:
        return kept._replace(actions=jnp.arange(len(kept.factors), dtype=kept.actions.dtype))

    @property
    def can_forget(self) -> bool:
        return True

    def forget(self, kept: RewardStatistics, factor: Float[Array, ""]) -> RewardStatistics:
        return kept._replace(
            factors=jnp.sqrt(factor) * kept.factors, num_rewards=factor * kept.num_rewards
        )


class KeptRows(KeptRewards):
    """Rewards of any law: the rows, over which messages are matched until they agree."""

    def init(self, hierarchy: Hierarchy, room: int) -> Buffer:
        return empty(max(room, 1), hierarchy.dim, exposure=hierarchy.takes_exposure)

    def add(
        self, hierarchy: Hierarchy, kept: Buffer, rows: tuple[Any, ...]
    ) -> tuple[Buffer, Int[Array, ""]]:
        return record(kept, hierarchy.num_actions, *rows)

    def backend(self, known: Hierarchy) -> GaussianBackend:
        return ExpectationPropagation(known)

    def state(self, known: Hierarchy, kept: Buffer) -> GaussianState:
        backend = self.backend(known)
        contexts, actions, *others = kept.columns
        blank = jnp.where(actions < 0, PADDING, actions)
        return backend.condition(backend.init(), contexts, blank, *others)

    def log_evidence(self, known: Hierarchy, kept: Buffer) -> Float[Array, ""]:
        """Where messages do not come to agree there is none: it may be off by any amount."""
        state = self.state(known, kept)
        return jnp.where(state.info.unconverged > 0, -jnp.inf, state.log_evidence)

    def reserve(self, kept: Buffer, more: int) -> Buffer:
        return reserve(kept, more)
