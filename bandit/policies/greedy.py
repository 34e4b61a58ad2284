"""Policies that choose by the mean and the spread of each action's score: greedy ones and Bayes-UCB."""

from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtri
from jaxtyping import Float, Int

from ...inference import Backend, Posterior, Status
from ...models import Hierarchy
from ...models.arrays import as_probability
from .policy import PosteriorPolicy

__all__ = ["BayesUCB", "BayesUcbState", "EpsilonGreedy", "Greedy", "ScoreMoments", "score_moments"]

_DRAWS = 256  # of the scores of a program written by hand, which has no vectors to take moments of


class ScoreMoments(NamedTuple):
    """The posterior mean and standard deviation of every action's score `x' theta_i`."""

    mean: Float[Array, " K"]
    sd: Float[Array, " K"]


def score_moments(
    backend: Backend[Any], key: Array, state: Any, context: Float[Array, "*K d"]
) -> ScoreMoments:
    """Moments of scores: from those of the actions' vectors, of a program by hand from draws.

    Example:
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> backend = ClosedForm(linear([[1.0], [0.0]], dim=1))
        >>> score_moments(backend, jax.random.key(0), backend.init(), jnp.ones(1)).sd.round(2)
        Array([1.41, 1.  ], dtype=float32)
    """
    if not isinstance(backend.problem, Hierarchy):
        drawn = backend.sample_many_scores(key, state, context, _DRAWS)
        return ScoreMoments(drawn.mean(0), drawn.std(0))
    posterior, name = backend.posterior(state), backend.problem.actions.name
    rows = jnp.broadcast_to(jnp.asarray(context), posterior.mean[name].shape)
    variance = jnp.einsum("ki,kij,kj->k", rows, posterior.cov[name], rows)
    mean = jnp.einsum("ki,ki->k", rows, posterior.mean[name])
    return ScoreMoments(mean, jnp.sqrt(jnp.maximum(variance, 0.0)))


class EpsilonGreedy(PosteriorPolicy):
    """The best action in the posterior mean; with probability `epsilon` any, all alike.

    Args:
        backend: the posterior.
        epsilon: the probability of choosing at random; zero is `Greedy`.

    Example:
        >>> from mixts.bandit import EpsilonGreedy
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> policy = EpsilonGreedy(ClosedForm(linear([[1.0], [0.5]], dim=1)), epsilon=0.1)
        >>> state = policy.update(policy.init(jax.random.key(0)), jnp.ones(1), 1, 2.0)
        >>> int(policy.act(jax.random.key(1), state, jnp.ones(1)))
        1
    """

    _: KW_ONLY
    epsilon: Any = 0.1

    def __post_init__(self):
        super().__post_init__()
        self.epsilon = as_probability(self.epsilon, "EpsilonGreedy epsilon")

    def scores(self, key: Array, state: Any, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """Posterior means, or independent uniform numbers."""
        coin, key_draws, key_any = jax.random.split(key, 3)
        means = score_moments(self.backend, key_draws, state, context).mean
        anything = jax.random.uniform(key_any, means.shape, means.dtype)
        return jnp.where(jax.random.uniform(coin) < self.epsilon, anything, means)


def Greedy(backend: Any) -> EpsilonGreedy:
    """The best action in the posterior mean, always: what a policy without exploration does.

    Example:
        >>> from mixts.bandit import Greedy
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> float(Greedy(ClosedForm(linear([[1.0], [0.5]], dim=1))).epsilon)
        0.0
    """
    return EpsilonGreedy(backend, epsilon=0.0)


class BayesUcbState(NamedTuple):
    """The backend's state, and the number of observations."""

    known: Any
    observed: Int[Array, ""]


class BayesUCB(PosteriorPolicy):
    """The action with the highest posterior quantile of its score (Kaufmann, Cappe & Garivier 2012).

    In round `t` it is the quantile `1 - 1 / (t + 1)`, or `level` in all rounds, of the normal
    distribution with the posterior mean and variance of the score: exact where the posterior is
    Gaussian.

    Args:
        backend: the posterior.
        level: a probability for all rounds; None raises it with the number of rounds.

    Example:
        >>> from mixts.bandit import BayesUCB
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> policy = BayesUCB(ClosedForm(linear([[1.0], [0.0]], dim=1)), level=0.975)
        >>> scores = policy.scores(jax.random.key(0), policy.init(jax.random.key(1)), jnp.ones(1))
        >>> [f"{score:.2f}" for score in scores]
        ['2.77', '1.96']
    """

    _: KW_ONLY
    level: Any = None

    def __post_init__(self):
        super().__post_init__()
        if self.level is not None:
            self.level = as_probability(self.level, "BayesUCB level")

    def init(self, key: Array, *, room: int = 0) -> BayesUcbState:
        """The backend's prior, and no observation."""
        return BayesUcbState(self.backend.init(key, room=room), jnp.zeros((), jnp.int32))

    def scores(
        self, key: Array, state: BayesUcbState, context: Float[Array, "*K d"]
    ) -> Float[Array, " K"]:
        """The quantile of every action's score."""
        moments = score_moments(self.backend, key, state.known, context)
        level = 1 - 1 / (state.observed + 2.0) if self.level is None else self.level
        return moments.mean + ndtri(level) * moments.sd

    def update(
        self, state: BayesUcbState, context: Any, action: Any, reward: Any, exposure: Any = 1.0
    ) -> BayesUcbState:
        """The state after one more observation."""
        known = super().update(state.known, context, action, reward, exposure)
        return BayesUcbState(known, state.observed + 1)

    def condition(
        self,
        state: BayesUcbState,
        contexts: Any,
        actions: Any,
        rewards: Any,
        exposure: Any = None,
    ) -> BayesUcbState:
        """The state after many more observations, taken in at once."""
        known = super().condition(state.known, contexts, actions, rewards, exposure)
        more = jnp.sum(jnp.asarray(actions) >= 0, dtype=jnp.int32)  # the others are padding
        return BayesUcbState(known, state.observed + more)

    def reserve(self, state: BayesUcbState, more: int) -> BayesUcbState:
        """The same state with room for `more` observations, where the backend keeps them."""
        return state._replace(known=super().reserve(state.known, more))

    def forget(self, state: BayesUcbState, factor: Any) -> BayesUcbState:
        """The backend's posterior with all evidence so far discounted; rounds are counted on."""
        return state._replace(known=super().forget(state.known, factor))

    def rebuilt(self, state: BayesUcbState) -> BayesUcbState:
        """The backend's state after vectors have joined the hierarchy."""
        return state._replace(known=super().rebuilt(state.known))

    def advance(self, state: BayesUcbState, rounds: Any = 1.0) -> BayesUcbState:
        """The backend's posterior so many rounds later; only observations are counted."""
        return state._replace(known=super().advance(state.known, rounds))

    def status(self, state: BayesUcbState) -> Status:
        """The backend's status."""
        return super().status(state.known)

    def posterior(self, state: BayesUcbState) -> Posterior:
        """The backend's posterior."""
        return super().posterior(state.known)
