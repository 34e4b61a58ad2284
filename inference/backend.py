"""The interface of a posterior backend, and the posterior it gives."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import jax
from jax import Array
from jaxtyping import Float, Int

from ..models.pytrees import register_declaration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Backend", "Posterior"]

State = TypeVar("State")


class Backend(ABC, Generic[State]):
    """Turns observations into posterior draws.

    Every method is pure and works inside `jit`, `lax.scan` and `vmap`. A state is a pytree. A context
    is (dim,), shared by all actions, or (K, dim), a row for each. Concrete observations are checked;
    inside `jit` an observation of an action out of range changes nothing.
    """

    @abstractmethod
    def init(self, key: Array | None = None, *, room: int = 0) -> State:
        """The state before any observation.

        A backend that keeps observations makes room for `room` of them at least, which matters inside
        `jit`, where it cannot make more later.
        """

    @abstractmethod
    def update(self, state: State, context: Any, action: Any, reward: Any) -> State:
        """The state after one more observation."""

    @abstractmethod
    def condition(self, state: State, contexts: Any, actions: Any, rewards: Any) -> State:
        """The state after many more: equal to one `update` each, in any order."""

    @abstractmethod
    def sample(self, key: Array, state: State) -> dict[str, Float[Array, "size d"]]:
        """One joint posterior draw of every level."""

    @abstractmethod
    def sample_scores(self, key: Array, state: State, context: Any) -> Float[Array, " K"]:
        """`x' theta_i` for every action, of one joint posterior draw."""

    @abstractmethod
    def posterior(self, state: State) -> "Posterior":
        """Marginal moments of every level, and draws."""

    def troubles(self, state: State) -> dict[str, Int[Array, ""]]:
        """How often what went wrong so far, by name; all zero if nothing did. Works inside `jit`."""
        return {}


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known of every level.

    Attributes:
        mean: level name -> (size, d) posterior means.
        cov: level name -> (size, d, d) marginal posterior covariances.
        log_evidence: log density of all rewards seen, or None where the backend has none.
        backend: the backend that draws.
        state: its state.
    """

    mean: dict[str, Array]
    cov: dict[str, Array]
    log_evidence: Array | None
    backend: Backend[Any]
    state: Any

    def draw(self, key: Array, n: int) -> dict[str, Float[Array, "n size d"]]:
        """`n` independent joint draws of every level."""
        keys = jax.random.split(key, n)
        return jax.vmap(lambda k: self.backend.sample(k, self.state))(keys)

    def to_arviz(self, key: Array | None = None, n: int = 1000) -> Any:
        """`n` joint draws as an ArviZ object with named dimensions; see `arviz_view`."""
        from .arviz_view import to_arviz

        return to_arviz(self, jax.random.key(0) if key is None else key, n)

    def plot(self, **options: Any) -> "Figure":
        """The posterior as a forest; see `plot_forest`."""
        from .plots.posterior import plot_forest

        return plot_forest(self, **options)

    def __repr__(self) -> str:
        levels = ", ".join(f"{name} {mean.shape}" for name, mean in self.mean.items())
        return f"Posterior({levels})"


register_declaration(
    Posterior, arrays=("mean", "cov", "log_evidence", "backend", "state"), static=()
)
