"""Hierarchies whose rewards are not Gaussian, rewards drawn from them, and their joint density."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from numpyro.infer.util import log_density

from dense_posterior import level_slices
from gaussian_models import crossed_effects, mixing, three_levels
from hierarchies import Group, Model, Rows, covariance
from scipy_density import moments

__all__ = ["STRUCTURES", "joint_derivatives", "simulate", "stack", "two_levels"]


def two_levels(seed: int = 0, dim: int = 2) -> Model:
    """Correlated effects under actions that mix them, with an intercept each."""
    rng = np.random.default_rng(seed)
    zone = Group("zone", 2, mean=rng.normal(size=(2, dim)), cov=covariance("joint", 2, dim, rng))
    item = Group(
        "item",
        4,
        parents={"zone": mixing("scalars", 4, 2, dim, rng)},
        mean=0.3 * rng.normal(size=(4, dim)),
        cov=covariance("matrices", 4, dim, rng),
    )
    return Model([zone, item], dim)


STRUCTURES = {
    "two levels": two_levels,
    "three levels": three_levels,
    "crossed parents": crossed_effects,
}


def simulate(model: Model, n: int, rng, reward: str | None = None) -> tuple[Model, Rows]:
    """The model with the given rewards, and `n` of them: vectors drawn from the prior, then rewards."""
    model = replace(model, reward=reward) if reward else model
    mean, cov = moments(model)
    drawn = rng.multivariate_normal(mean, cov)[level_slices(model)[model.groups[-1].name]]
    theta = drawn.reshape(-1, model.dim)
    contexts = rng.normal(size=(n, model.dim)) / np.sqrt(model.dim)
    actions = rng.integers(0, len(theta), n)
    predictor = np.sum(contexts * theta[actions], axis=1)
    if model.reward == "bernoulli":
        rewards = rng.random(n) < scipy.special.expit(predictor)
    elif model.reward == "poisson":
        rewards = rng.poisson(np.exp(predictor))
    else:
        rewards = predictor + model.noise * rng.normal(size=n)
    return model, Rows(contexts, actions, np.asarray(rewards, float))


def stack(hierarchy, vectors) -> jax.Array:
    """The vectors of all levels as one, top to bottom."""
    return jnp.concatenate([vectors[level.name].ravel() for level in hierarchy.levels])


@jax.jit
def joint_derivatives(hierarchy, seen, vectors):
    """Gradient and Hessian of NumPyro's joint log density of all levels and rewards."""

    def log_joint(z):
        values, start = {}, 0
        for level in hierarchy.levels:
            stop = start + level.size * hierarchy.dim
            values[level.name] = z[start:stop].reshape(level.size, hierarchy.dim)
            start = stop
        return log_density(hierarchy.program, tuple(seen), {}, values)[0]

    z = stack(hierarchy, vectors)
    return jax.grad(log_joint)(z), jax.hessian(log_joint)(z)
