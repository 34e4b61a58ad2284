"""The interface of a posterior backend, and the posterior it gives."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..models import Hierarchy
from ..models.arrays import is_concrete
from ..models.declaration import Declaration
from .program_cache import keep_programs
from .status import Status, Trouble

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Backend", "Posterior"]

State = TypeVar("State")


class Backend(Declaration, Generic[State]):
    """Turns observations into posterior draws.

    Every method is pure and works inside `jit`, `lax.scan` and `vmap`. A state is a pytree. A context
    is (dim,), shared by all actions, or (K, dim), a row for each. Concrete observations are checked;
    inside `jit` an observation of an action out of range changes nothing.

    Example:
        >>> from mixts.inference import Backend, ClosedForm
        >>> from mixts.models import linear
        >>> backend: Backend = ClosedForm(linear([[1.0], [1.0]], dim=1))
        >>> state = backend.update(backend.init(), context=[1.0], action=0, reward=3.0)
        >>> backend.posterior(state)
        Posterior(effect (1, 1), action (2, 1))
    """

    def __check_init__(self) -> None:
        keep_programs()

    @property
    def compiler_options(self) -> dict[str, Any] | None:
        """Options of XLA for programs that contain its methods, as `jax.jit` takes them."""
        return None

    @abstractmethod
    def init(self, key: Array | None = None, *, room: int = 0) -> State:
        """The state before any observation.

        A backend that keeps observations makes room for `room` of them at least, which matters inside
        `jit`, where it cannot make more later.
        """

    @abstractmethod
    def update(
        self, state: State, context: Any, action: Any, reward: Any, exposure: Any = 1.0
    ) -> State:
        """The state after one more observation, which may stand for `exposure` rewards: see `Data`."""

    @abstractmethod
    def condition(
        self, state: State, contexts: Any, actions: Any, rewards: Any, exposure: Any = None
    ) -> State:
        """The state after many more observations: the same as one `update` for each, in any order."""

    @abstractmethod
    def sample(self, key: Array, state: State) -> dict[str, Float[Array, "size d"]]:
        """One joint posterior draw of every level."""

    def sample_unknowns(self, key: Array, state: State, n: int) -> dict[str, Float[Array, "n ..."]]:
        """`n` joint posterior draws of all that is unknown: levels, learned scales, weights, noise."""
        return jax.vmap(lambda k: self.sample(k, state))(jax.random.split(key, n))

    @abstractmethod
    def sample_scores(self, key: Array, state: State, context: Any) -> Float[Array, " K"]:
        """`x' theta_i` for every action, of one joint posterior draw."""

    def sample_many(self, key: Array, state: State, n: int) -> dict[str, Float[Array, "n size d"]]:
        """`n` joint posterior draws of every level, independent unless the backend says otherwise."""
        return jax.vmap(lambda k: self.sample(k, state))(jax.random.split(key, n))

    def sample_many_scores(
        self, key: Array, state: State, context: Any, n: int
    ) -> Float[Array, "n K"]:
        """The scores of every action in `n` posterior draws."""
        return jax.vmap(lambda k: self.sample_scores(k, state, context))(jax.random.split(key, n))

    @abstractmethod
    def posterior(self, state: State) -> "Posterior":
        """Marginal moments of every level, and draws."""

    def status(self, state: State) -> Status:
        """What went wrong so far; works inside `jit`."""
        return Status()

    @property
    def problem(self) -> Any:
        """What contexts, actions and rewards must fit: a hierarchy, or the target of a program."""
        return getattr(self, "hierarchy", None)

    def reserve(self, state: State, more: int) -> State:
        """The same state with room for `more` observations, where observations are kept."""
        return state

    def rebuilt(self, state: State) -> State:
        """The state after vectors have joined the hierarchy, with what they change for all made anew."""
        return state

    def log_evidence(self, state: State) -> Array | None:
        """Log density of all observed rewards, or None where the backend has none; works inside `jit`."""
        return None

    def forget(self, state: State, factor: Any) -> State:
        """The state in which the evidence of all observations so far is multiplied by `factor`."""
        raise TypeError(
            f"{type(self).__name__} cannot forget; ClosedForm, Factored, ExpectationPropagation and "
            "Collapsed can"
        )

    def advance(self, state: State, rounds: Any = 1.0) -> State:
        """The state so many rounds later, where levels drift: see `Level`."""
        if getattr(self.problem, "drifts", False):
            raise TypeError(
                f"{type(self).__name__} knows one moment only, and levels drift; use ClosedForm, Factored "
                "or ExpectationPropagation, or hierarchy.without_drift()"
            )
        return state

    def with_hierarchy(self, hierarchy: Hierarchy) -> "Backend[State]":
        """The same backend for a hierarchy that differs in its actions alone."""
        raise TypeError(
            f"{type(self).__name__} cannot take in new actions while it runs: its draws "
            "are of all actions together. ClosedForm, ExpectationPropagation, Factored, Laplace and "
            "Collapsed can"
        )


class Posterior(eqx.Module):
    """What is known of every level.

    Attributes:
        mean: level name -> (size, d) posterior means.
        cov: level name -> (size, d, d) marginal posterior covariances.
        log_evidence: log density of all observed rewards, or None where the backend has none.
        backend: the backend that draws.
        state: its state.

    Example:
        >>> import jax
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> backend = ClosedForm(linear([[1.0], [1.0]], dim=1))
        >>> posterior = backend.posterior(backend.init())
        >>> posterior.cov["action"].shape, posterior.draw(jax.random.key(0), 5)["effect"].shape
        ((2, 1, 1), (5, 1, 1))
    """

    mean: dict[str, Array]
    cov: dict[str, Array]
    log_evidence: Array | None
    backend: Backend[Any]
    state: Any

    @property
    def status(self) -> Status:
        """The status of the backend's state, and how many moments are not finite."""
        numbers = jax.tree.leaves((self.mean, self.cov))
        broken = sum(jnp.sum(~jnp.isfinite(leaf)) for leaf in numbers)
        found = self.backend.status(self.state).counts
        return Status(found | {Trouble.NOT_FINITE: found.get(Trouble.NOT_FINITE, 0) + broken})

    def draw(self, key: Array, n: int) -> dict[str, Float[Array, "n size d"]]:
        """`n` joint draws of every level, as independent as the backend's are.

        Those of a Gaussian or variational backend are independent. Those of `Nuts` are different draws
        of its chains, which are correlated: `Nuts.diagnostics` says how many independent ones they are
        worth.
        """
        return self.backend.sample_many(key, self.state, n)

    def draw_scores(self, key: Array, n: int, context: Any) -> Float[Array, "n K"]:
        """The scores of every action in a context, in `n` draws like those of `draw`."""
        return self.backend.sample_many_scores(key, self.state, context, n)

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
        known = all(
            is_concrete(leaf) for leaf in jax.tree.leaves((self.mean, self.cov, self.state))
        )
        trouble = "" if not known or self.status.ok else f"; trouble: {self.status}"
        return f"Posterior({levels}{trouble})"
