"""Several declared hierarchies: which of them explain data, and playing without knowing which is right."""

from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from jaxtyping import Float

from ...models import Data, Hierarchy
from ...models.arrays import as_array, as_count
from ...models.messages import listed, short
from ..backend import Backend, Posterior
from ..observation import as_context
from ..progress import reported, task
from ..status import Status
from .collapsed import Collapsed, backend_for

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HierarchyComparison", "Mixture", "compare_hierarchies"]

_POPULATIONS = 4  # whose evidences, of the same data, say how far an estimate is off


class HierarchyComparison(NamedTuple):
    """How well hierarchies explain data.

    Attributes:
        table: a row for each, with `log_evidence`, the standard error `error` of its estimate, which is
            zero where it is exact, and the posterior `probability`.
        status: name -> what went wrong while its evidence was computed.

    Example:
        >>> from mixts.inference import compare_hierarchies
        >>> from mixts.models import Data, linear
        >>> both = {"alike": linear([[1.0], [1.0]], 1), "apart": linear([[1.0, 0.0], [0.0, 1.0]], 1)}
        >>> found = compare_hierarchies(both, Data([[1.0], [1.0]], [0, 1], [2.0, 2.0]))
        >>> found.table["probability"].round(2).to_dict()
        {'alike': 0.6, 'apart': 0.4}
    """

    table: "pd.DataFrame"
    status: dict[str, Status]


def compare_hierarchies(
    hierarchies: Mapping[str, Hierarchy],
    data: Data,
    *,
    probabilities: Any = None,
    particles: int = 512,
    key: Array | None = None,
    progress: bool | None = None,
) -> HierarchyComparison:
    """Posterior probabilities of hierarchies, from the density of all rewards under each.

    All vectors are integrated out exactly where rewards are Gaussian, and by expectation propagation where
    they are not. Unknown numbers are integrated out by particles that go from their prior to their
    posterior by shares of the evidence, as in `Collapsed`: four populations, whose mean is the estimate,
    and whose spread its standard error. Evidences depend on priors: a wide prior of a scale is paid for.

    Example:
        >>> from mixts.inference import compare_hierarchies
        >>> from mixts.models import Data, linear
        >>> both = {"one": linear([[1.0]], dim=1), "wide": linear([[1.0]], dim=1, effect_cov=100.0)}
        >>> compare_hierarchies(both, Data([[1.0]], [0], [0.0])).table.index.tolist()
        ['one', 'wide']

    Args:
        hierarchies: name -> hierarchy; all of the same actions, contexts and family of rewards.
        data: the observations.
        probabilities: of each before any data; the same for all by default.
        particles: of each population, where numbers are unknown.
        key: the source of randomness.
        progress: whether to say on stderr what is being done; by default if it takes over two seconds.
    """
    import pandas as pd

    names, prior = _check(hierarchies, probabilities, "compare_hierarchies")
    if not isinstance(data, Data):
        raise TypeError(
            f"compare_hierarchies: data is a {type(data).__name__}; expected Data(contexts, actions, "
            "rewards)"
        )
    particles = as_count(particles, "compare_hierarchies particles")
    key = jax.random.key(0) if key is None else key
    rows, found = {}, {}
    with task("compare_hierarchies", len(names), "hierarchies", progress) as bar:
        for place, (name, hierarchy) in enumerate(hierarchies.items()):
            bar.say(f"compare_hierarchies: {name}")
            backend = backend_for(hierarchy, particles)
            estimates, status = _evidences(backend, jax.random.fold_in(key, place), data)
            rows[name] = _mean_and_error(np.asarray(estimates, np.float64))
            found[name] = status
            bar.advance()
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["log_evidence", "error"])
    score = np.log(prior) + table["log_evidence"].to_numpy()
    probability = np.exp(score - np.logaddexp.reduce(score))
    return HierarchyComparison(table.assign(probability=probability), found)


class MixtureState(NamedTuple):
    """The posterior under each hierarchy, and how probable these are.

    Attributes:
        states: of their backends.
        log_weights: (H,) the log probability of each hierarchy before any data.
    """

    states: tuple[Any, ...]
    log_weights: Float[Array, " H"]


class Mixture(Backend[MixtureState]):
    """Several hierarchies of the same actions, one of which is right: the hierarchy is one more unknown.

    Each is conditioned on every reward by a backend of its own, `ClosedForm`, `ExpectationPropagation` or
    `Collapsed`; their evidences, which these have online, say how probable each is. A draw is of a
    hierarchy by its probability, and then of its posterior: so an agent plays under model uncertainty. A
    round costs what those of all backends do.

    Args:
        hierarchies: name -> hierarchy.
        probabilities: of each before any data, in their order; the same for all by default. The attributes
            are in the order of the names.
        particles: of those that leave numbers unknown.

    Example:
        >>> from mixts.inference import Mixture
        >>> from mixts.models import linear
        >>> both = {"alike": linear([[1.0], [1.0]], 1), "apart": linear([[1.0, 0.0], [0.0, 1.0]], 1)}
        >>> backend = Mixture(both)
        >>> state = backend.condition(backend.init(), [[1.0], [1.0]], [0, 1], [2.0, 2.0])
        >>> {name: round(float(p), 2) for name, p in backend.probabilities_of(state).items()}
        {'alike': 0.6, 'apart': 0.4}
    """

    hierarchies: Mapping[str, Hierarchy]
    probabilities: Any = None
    _: KW_ONLY
    particles: int = eqx.field(default=256, static=True)

    def __post_init__(self):
        names, prior = _check(self.hierarchies, self.probabilities, "Mixture")
        # Sorted, as JAX sorts the keys of a dict, so that they come in one order inside and outside jit.
        order = np.argsort(names)
        self.hierarchies = {names[i]: self.hierarchies[names[i]] for i in order}
        self.probabilities = jnp.asarray(prior[order], jnp.result_type(float))
        self.particles = as_count(self.particles, "Mixture particles")
        for name in names:
            backend_for(self.hierarchies[name], self.particles)

    @property
    def backends(self) -> tuple[Backend[Any], ...]:
        """One for each hierarchy."""
        return tuple(backend_for(each, self.particles) for each in self.hierarchies.values())

    @property
    def hierarchy(self) -> Hierarchy:
        """One of the hierarchies, whose actions and rewards are those of all."""
        return next(iter(self.hierarchies.values()))

    @property
    def problem(self) -> Hierarchy:
        """What observations must fit."""
        return self.hierarchy

    @property
    def shared_levels(self) -> tuple[str, ...]:
        """The levels that all hierarchies have, in the same shape: the actions at least."""
        first, *others = (each.shapes for each in self.hierarchies.values())
        return tuple(
            name for name, shape in first.items() if all(o.get(name) == shape for o in others)
        )

    def init(self, key: Array | None = None, *, room: int = 0) -> MixtureState:
        """The prior under each hierarchy."""
        key = jax.random.key(0) if key is None else key
        keys = jax.random.split(key, len(self.hierarchies))
        pairs = zip(self.backends, keys, strict=True)
        states = tuple(backend.init(own, room=room) for backend, own in pairs)
        return MixtureState(states, jnp.log(self.probabilities))

    def update(
        self, state: MixtureState, context: Any, action: Any, reward: Any, exposure: Any = 1.0
    ) -> MixtureState:
        """One observation, under every hierarchy."""
        seen = context, action, reward, exposure
        return self._each(state, lambda backend, own: backend.update(own, *seen))

    def condition(
        self, state: MixtureState, contexts: Any, actions: Any, rewards: Any, exposure: Any = None
    ) -> MixtureState:
        """Many observations, under every hierarchy."""
        seen = contexts, actions, rewards, exposure
        return self._each(state, lambda backend, own: backend.condition(own, *seen))

    def reserve(self, state: MixtureState, more: int) -> MixtureState:
        """The same state with room for more observations."""
        return self._each(state, lambda backend, own: backend.reserve(own, more))

    def log_weights(self, state: MixtureState) -> Float[Array, " H"]:
        """The log posterior probability of each hierarchy."""
        pairs = zip(self.backends, state.states, strict=True)
        evidence = jnp.stack([_known(backend.log_evidence(own)) for backend, own in pairs])
        return jax.nn.log_softmax(state.log_weights + evidence)

    def probabilities_of(self, state: MixtureState) -> dict[str, Array]:
        """Name -> posterior probability of the hierarchy."""
        weights = jnp.exp(self.log_weights(state))
        return dict(zip(self.hierarchies, weights, strict=True))

    def log_evidence(self, state: MixtureState) -> Array:
        """Log density of all rewards, whichever hierarchy is right."""
        pairs = zip(self.backends, state.states, strict=True)
        evidence = jnp.stack([_known(backend.log_evidence(own)) for backend, own in pairs])
        return logsumexp(jnp.log(self.probabilities) + evidence)

    def sample(self, key: Array, state: MixtureState) -> dict[str, Float[Array, "size d"]]:
        """One joint draw of the levels that all hierarchies share."""

        def of(backend: Backend[Any], own: Any) -> Any:
            def draw(key: Array) -> dict[str, Array]:
                drawn = backend.sample(key, own)
                return {name: drawn[name] for name in self.shared_levels}

            return draw

        return self._one(key, state, of)

    def sample_scores(self, key: Array, state: MixtureState, context: Any) -> Float[Array, " K"]:
        """`x' theta_i` of one joint draw."""
        context = as_context(self.hierarchy, context)
        of = lambda b, own: lambda key: b.sample_scores(key, own, context)  # noqa: E731
        return self._one(key, state, of)

    @reported
    def posterior(self, state: MixtureState) -> Posterior:
        """Moments of the levels that all hierarchies share, over all of them."""
        pairs = zip(self.backends, state.states, strict=True)
        parts = [backend.posterior(own) for backend, own in pairs]
        weights = jnp.exp(self.log_weights(state))
        mean, cov = {}, {}
        for name in self.shared_levels:
            means = jnp.stack([part.mean[name] for part in parts])
            covs = jnp.stack([part.cov[name] for part in parts])
            mean[name] = jnp.einsum("h,hkd->kd", weights, means)
            away = means - mean[name]
            spread = jnp.einsum("h,hkd,hke->kde", weights, away, away)
            cov[name] = jnp.einsum("h,hkde->kde", weights, covs) + spread
        after = state._replace(states=tuple(part.state for part in parts))
        return Posterior(mean, cov, self.log_evidence(state), self, after)

    def status(self, state: MixtureState) -> Status:
        """What went wrong under any hierarchy."""
        total: dict[str, Array] = {}
        for backend, own in zip(self.backends, state.states, strict=True):
            for kind, count in backend.status(own).counts.items():
                total[kind] = total.get(kind, jnp.zeros((), jnp.int32)) + count
        return Status(total)

    def _each(self, state: MixtureState, change: Any) -> MixtureState:
        pairs = zip(self.backends, state.states, strict=True)
        return state._replace(states=tuple(change(backend, own) for backend, own in pairs))

    def _one(self, key: Array, state: MixtureState, of: Any) -> Any:
        """What one hierarchy gives, drawn by its probability."""
        key_which, key_draw = jax.random.split(key)
        which = jax.random.categorical(key_which, self.log_weights(state))
        pairs = zip(self.backends, state.states, strict=True)
        return jax.lax.switch(which, [of(backend, own) for backend, own in pairs], key_draw)

    def __repr__(self) -> str:
        return f"Mixture({listed(self.hierarchies)})"


def _known(evidence: Array | None) -> Array:
    assert evidence is not None, "backends of `backend_for` have an evidence"
    return evidence


def _evidences(backend: Backend[Any], key: Array, data: Data) -> tuple[list[float], Status]:
    """Estimates of the evidence: one where it is exact, else of several populations."""
    count = _POPULATIONS if isinstance(backend, Collapsed) else 1
    found, status = [], Status()
    for own in jax.random.split(key, count):
        state = backend.condition(backend.init(own, room=len(data)), *data)
        found.append(float(_known(backend.log_evidence(state))))
        status = status if not status.ok else backend.status(state)
    return found, status


def _mean_and_error(estimates: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The log of the mean of evidences, and its standard error."""
    top = estimates.max()
    each = np.exp(estimates - top)
    error = each.std(ddof=1) / np.sqrt(len(each)) / each.mean() if len(each) > 1 else 0.0
    return float(top + np.log(each.mean())), float(error)


def _check(
    hierarchies: Any, probabilities: Any, where: str
) -> tuple[list[str], Float[np.ndarray, " H"]]:
    """The names of hierarchies that fit one another, and the prior probability of each."""
    if not isinstance(hierarchies, Mapping) or len(hierarchies) < 2:
        raise TypeError(
            f"{where}: got {short(hierarchies)}; expected a dict from names to two hierarchies or more"
        )
    for name, hierarchy in hierarchies.items():
        if not isinstance(name, str) or not isinstance(hierarchy, Hierarchy):
            raise TypeError(
                f"{where}: {short(name)} is {short(hierarchy)}; expected a name and a Hierarchy"
            )
    (first, like), *others = hierarchies.items()
    for name, hierarchy in others:
        ours, theirs = (
            (h.actions.name, h.num_actions, h.dim, type(h.reward), h.components)
            for h in (like, hierarchy)
        )
        if ours != theirs:
            raise ValueError(
                f"{where}: '{first}' and '{name}' differ in their actions ({ours[:2]} and {theirs[:2]}), "
                f"dim ({ours[2]} and {theirs[2]}), reward or components; expected the same of all"
            )
    if probabilities is None:
        return list(hierarchies), np.full(len(hierarchies), 1 / len(hierarchies))
    prior = as_array(probabilities, f"{where} probabilities").astype(np.float64)
    if prior.shape != (len(hierarchies),) or (prior <= 0).any():
        raise ValueError(
            f"{where} probabilities are {prior.tolist()}; expected {len(hierarchies)} positive numbers"
        )
    return list(hierarchies), prior / prior.sum()
