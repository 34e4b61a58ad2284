"""A problem drawn from a program written by hand."""

from dataclasses import KW_ONLY
from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...inference.observation import own_context
from ...inference.programs.by_hand import Program
from ...inference.random import plain_key
from ...models.messages import short
from .contexts import as_contexts
from .environment import Environment, Instance, Problem

__all__ = ["ProgramEnvironment", "ProgramProblem"]


class ProgramEnvironment(Environment):
    """One world of a program: all its unknowns, which give the law of rewards.

    Example:
        >>> import jax, numpyro, numpyro.distributions as dist
        >>> from mixts.bandit import ProgramProblem
        >>> from mixts.inference import Program
        >>> def coin(contexts, actions, rewards=None):
        ...     theta = numpyro.sample("action", dist.Normal(0.0, 1.0).expand([4, 2]).to_event(2))
        ...     score = jnp.sum(theta[actions] * contexts, axis=-1)
        ...     numpyro.sample("reward", dist.Bernoulli(logits=score), obs=rewards)
        >>> world = ProgramProblem(Program(coin, dim=2)).sample(jax.random.key(0)).environment
        >>> world.mean_rewards(jnp.ones(2)).shape
        (4,)
    """

    hierarchy: Any  # the program, in the place of a hierarchy

    @property
    def program(self) -> Program:
        """The program whose unknowns are hidden."""
        return self.hierarchy

    @property
    def theta(self) -> Float[Array, "K d"]:
        """A blank of the shape of actions: a program need not have vectors of them."""
        return jnp.zeros((self.program.num_actions, self.program.dim))

    def mean_rewards(self, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """The mean of every action's reward."""
        K = self.program.num_actions
        rows = jnp.broadcast_to(context, (K, self.program.dim))
        return jnp.asarray(self.program.reward_law(self.levels, rows, jnp.arange(K)).mean)

    def reward(
        self,
        key: Array,
        context: Float[Array, "*K d"],
        action: Int[Array, ""],
        exposure: Float[Array, ""] | None = None,
    ) -> Float[Array, ""]:
        """A reward of one action, or a row that stands for `exposure` of them."""
        row = own_context(context, action)[None]
        exposed = None if exposure is None else exposure[None]
        law = self.program.reward_law(self.levels, row, action[None], exposed)
        return jnp.asarray(law.sample(plain_key(key)))[0].astype(row.dtype)


class ProgramProblem(Problem):
    """Unknowns from the prior of a program written by hand, which the agent knows.

    Policies are made from the program: `lambda program: ThompsonSampling(Nuts(program))`.

    Args:
        program: the program.
        contexts: None, a table, a function of a key, or a law of `mixts.bandit.problems.contexts`, with
            the program's columns at the end of every context.

    Example:
        >>> import numpyro, numpyro.distributions as dist
        >>> from mixts.bandit import ProgramProblem
        >>> from mixts.inference import Program
        >>> def drift(actions, day, rewards=None):
        ...     line = numpyro.sample("line", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
        ...     score = numpyro.deterministic("score", line[actions, 0] + line[actions, 1] * day)
        ...     numpyro.sample("reward", dist.Normal(score, 1.0), obs=rewards)
        >>> program = Program(drift, dim=1, scores="score", num_actions=2)
        >>> ProgramProblem(program, contexts=[[0.0], [0.5], [1.0]]).program.columns
        ('day',)
    """

    program: Program
    _: KW_ONLY
    contexts: Any = None

    def __post_init__(self):
        if not isinstance(self.program, Program):
            raise TypeError(
                f"ProgramProblem: got {short(self.program)}; expected a Program(function, dim=...)"
            )
        dim, actions = self.program.dim, self.program.num_actions
        self.contexts = as_contexts(self.contexts, dim, actions, "ProgramProblem")

    def sample(self, key: Array) -> Instance:
        """All unknowns of the program."""
        program: Any = self.program
        world = ProgramEnvironment(program, self.program.sample_prior(key), self.contexts)
        return Instance(program, world)
