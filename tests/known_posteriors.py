"""Backends that know their answer, whatever the data: independent normals with given moments."""

import jax
import jax.numpy as jnp

from mixts.inference import Backend, Posterior, Status
from mixts.models import Hierarchy

__all__ = ["Known", "known"]


class Known(Backend):
    """`N(mean, sd^2)` for every number of every level: level name -> (size, d)."""

    mean: dict
    sd: dict
    reported: Status = Status()

    def init(self, key=None, *, room=0):
        return ()

    def update(self, state, context, action, reward):
        return state

    def condition(self, state, contexts, actions, rewards):
        return state

    def sample(self, key, state):
        keys = jax.random.split(key, len(self.mean))
        return {
            name: mean + self.sd[name] * jax.random.normal(k, mean.shape)
            for k, (name, mean) in zip(keys, self.mean.items(), strict=True)
        }

    def sample_scores(self, key, state, context):
        *_, theta = self.sample(key, state).values()
        return jnp.sum(theta * context, axis=-1)

    def posterior(self, state):
        cov = {name: jax.vmap(jnp.diag)(sd**2) for name, sd in self.sd.items()}
        return Posterior(self.mean, cov, None, self, state)

    def status(self, state):
        return self.reported

    def moved(self, shift: float, scale: float, reported: Status | None = None) -> "Known":
        """Means moved by `shift` of these standard deviations, which are then multiplied by `scale`."""
        mean = {name: self.mean[name] + shift * self.sd[name] for name in self.mean}
        sd = {name: scale * sd for name, sd in self.sd.items()}
        return Known(mean, sd, reported or Status())


def known(hierarchy: Hierarchy, seed: int = 0) -> Known:
    """Any moments for the levels of a hierarchy."""
    mean, sd = {}, {}
    for level in hierarchy.levels:
        key = jax.random.fold_in(jax.random.key(seed), len(mean))
        shape = (level.size, hierarchy.dim)
        mean[level.name] = jax.random.normal(key, shape)
        sd[level.name] = jax.random.uniform(jax.random.fold_in(key, 1), shape, float, 0.5, 2.0)
    return Known(mean, sd)
