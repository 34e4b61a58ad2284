"""Hierarchies whose rewards are not Gaussian, rewards of theirs, and the mode of the joint density."""

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

__all__ = ["STRUCTURES", "errors_at_the_mode", "simulate", "two_levels"]


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


def simulate(
    model: Model, n: int, rng, reward: str | None = None, contexts: np.ndarray | None = None
) -> tuple[Model, Rows]:
    """The model with the given rewards, and `n` of them: vectors drawn from the prior, then rewards."""
    model = replace(model, reward=reward) if reward else model
    mean, cov = moments(model)
    drawn = rng.multivariate_normal(mean, cov)[level_slices(model)[model.groups[-1].name]]
    theta = drawn.reshape(-1, model.dim)
    if contexts is None:
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


@jax.jit
def _derivatives(hierarchy, seen, vectors, mask):
    """Gradient and Hessian of NumPyro's joint log density, all levels stacked from top to bottom."""

    def log_joint(z):
        values, start = {}, 0
        for level in hierarchy.levels:
            stop = start + level.size * hierarchy.dim
            values[level.name] = z[start:stop].reshape(level.size, hierarchy.dim)
            start = stop
        return log_density(hierarchy.program, tuple(seen), {"mask": mask}, values)[0]

    z = jnp.concatenate([vectors[level.name].ravel() for level in hierarchy.levels])
    return jax.grad(log_joint)(z), jax.hessian(log_joint)(z)


def errors_at_the_mode(hierarchy, seen, mean, cov, mask=None) -> tuple[float, float]:
    """How far a posterior is from the Laplace approximation of NumPyro's joint density.

    The first number is the largest error of a mean, in standard deviations: Newton's step from there,
    which is the distance to the mode up to the square of itself. The second is the largest relative
    error of a standard deviation or of an entry of a covariance, against the inverse of the Hessian.
    """
    derivatives = _derivatives(hierarchy, seen, mean, mask)
    gradient, hessian = (np.asarray(part, float) for part in derivatives)
    inverse = np.linalg.inv(-hessian)
    off = np.abs(inverse @ gradient) / np.sqrt(np.diag(inverse))
    wrong, start, dim = [], 0, hierarchy.dim
    for level in hierarchy.levels:
        for found in np.asarray(cov[level.name]):
            expected = inverse[start : start + dim, start : start + dim]
            size = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
            wrong.append(np.abs((found - expected) / size).max())
            start += dim
    # A NaN must not get lost in a maximum.
    return tuple(float(np.max(np.nan_to_num(part, nan=np.inf))) for part in (off, wrong))
