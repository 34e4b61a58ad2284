"""The log density and the prior moments of a hierarchy, written with NumPy and SciPy alone.

One loop per vector, one matrix per arrow: slow, plain, and nothing shared with mixts.
"""

import numpy as np
import scipy.linalg
import scipy.stats

from hierarchies import LINKS, Few, Group, Law, Model

__all__ = ["log_density", "moments", "offsets", "spread", "unknowns"]


def unknowns(model: Model, rng) -> dict[str, np.ndarray]:
    """A value for every unknown of the program, by the name of its site."""
    values = {}
    for group in model.groups:
        for parent, weights in group.parents.items():
            learned = weights.values if isinstance(weights, Few) else weights
            if isinstance(learned, Law):
                values[f"{group.name}_weights_{parent}"] = learned.value
        if group.scale:
            values[f"{group.name}_scale"] = group.scale.value
        site = group.name if group.is_centered else f"{group.name}_base"
        flat = is_joint(group, model.dim) and not group.is_centered
        shape = (group.size * model.dim,) if flat else (group.size, model.dim)
        values[site] = rng.normal(size=shape)
    if isinstance(model.noise, Law):
        values["reward_noise"] = model.noise.value
    return values


def log_density(model: Model, values, contexts, actions, rewards):
    """The log density of all unknowns and rewards, and the vectors of each level."""
    total, vectors = 0.0, {}
    for group in model.groups:
        total += _log_density_of_learned(group, values)
        loc = np.array([_location(group, i, vectors, values, model.dim) for i in range(group.size)])
        cov = spread(group, values, model.dim)
        if is_joint(group, model.dim):
            blocks, locs = [cov], [loc.ravel()]
        else:
            blocks, locs = list(cov), list(loc)
        name = group.name if group.is_centered else f"{group.name}_base"
        points = values[name].reshape(len(blocks), -1)
        drawn = []
        for point, mean, block in zip(points, locs, blocks, strict=True):
            if group.is_centered:
                total += _log_density_of_vector(point, mean, block, group.df)
                drawn.append(point)
            else:
                total += _log_density_of_vector(point, 0 * mean, np.eye(mean.size), group.df)
                drawn.append(mean + np.linalg.cholesky(block) @ point)
        vectors[group.name] = np.array(drawn).reshape(group.size, model.dim)
    noise = model.noise
    if isinstance(noise, Law):
        total += noise.log_density(values["reward_noise"])
        noise = values["reward_noise"]
    theta = vectors[model.groups[-1].name]
    for context, action, reward in zip(contexts, actions, rewards, strict=True):
        total += _log_density_of_reward(model.reward, reward, context @ theta[action], noise)
    return total, vectors


def moments(model: Model, dtype: type = float) -> tuple[np.ndarray, np.ndarray]:
    """Prior mean and covariance of all vectors of a linear model, stacked from top to bottom."""
    mean, cov = np.zeros(0, dtype), np.zeros((0, 0), dtype)
    start = offsets(model)
    for group in model.groups:
        maps = np.zeros((group.size * model.dim, len(mean)), dtype)
        for parent in group.parents:
            parent_size = _group(model, parent).size
            for i in range(group.size):
                for j in range(parent_size):
                    row = slice(i * model.dim, (i + 1) * model.dim)
                    left = start[parent] + j * model.dim
                    maps[row, left : left + model.dim] += _arrow(group, parent, i, j, model.dim, {})
        blocks = spread(group, {}, model.dim)
        own = blocks if is_joint(group, model.dim) else scipy.linalg.block_diag(*blocks)
        # The covariance of a Student t is larger than its scale matrix.
        own = own * (group.df / (group.df - 2) if group.df else 1.0)
        intercept = np.broadcast_to(group.mean, (group.size, model.dim)).ravel()
        mean = np.concatenate([mean, maps @ mean + intercept])
        cross = maps @ cov
        cov = np.block([[cov, cross.T], [cross, cross @ maps.T + own]])
    return mean, cov


def offsets(model: Model) -> dict[str, int]:
    """Where the numbers of each level begin in `moments`."""
    starts = np.cumsum([0, *(group.size * model.dim for group in model.groups)])
    return {group.name: int(start) for group, start in zip(model.groups, starts, strict=False)}


def spread(group: Group, values, dim: int) -> np.ndarray:
    """The scale matrix of each vector given its parents, (size, dim, dim), or the joint one."""
    if group.scale:
        deviations = np.broadcast_to(values[f"{group.name}_scale"], (group.size, dim))
        return np.array([np.diag(row**2) for row in deviations])
    cov = np.asarray(group.cov)
    if is_joint(group, dim):
        return cov
    if cov.ndim <= 1:
        cov = np.diag(np.broadcast_to(cov, (dim,)))
    return np.array([cov] * group.size) if cov.ndim == 2 else cov


def is_joint(group: Group, dim: int) -> bool:
    joint = (group.size * dim, group.size * dim)
    return group.scale is None and group.size > 1 and np.shape(group.cov) == joint


def _group(model: Model, name: str) -> Group:
    return next(group for group in model.groups if group.name == name)


def _arrow(group: Group, parent: str, i: int, j: int, dim: int, values) -> np.ndarray:
    """The matrix through which vector `i` of a level depends on vector `j` of a parent."""
    weights = group.parents[parent]
    numbers = weights.values if isinstance(weights, Few) else weights
    if isinstance(numbers, Law):
        numbers = values[f"{group.name}_weights_{parent}"]
    if isinstance(weights, Few):
        found = [v for index, v in zip(weights.indices[i], numbers[i], strict=True) if index == j]
        return sum(found) * np.eye(dim)
    return numbers[i, j] if numbers.ndim == 4 else numbers[i, j] * np.eye(dim)


def _location(group: Group, i: int, vectors, values, dim: int) -> np.ndarray:
    loc = np.broadcast_to(group.mean, (group.size, dim))[i]
    for parent in group.parents:
        for j, vector in enumerate(vectors[parent]):
            loc = loc + _arrow(group, parent, i, j, dim, values) @ vector
    return LINKS[group.link][1](loc) if group.link else loc


def _log_density_of_learned(group: Group, values) -> float:
    total = group.scale.log_density(values[f"{group.name}_scale"]) if group.scale else 0.0
    for parent, weights in group.parents.items():
        learned = weights.values if isinstance(weights, Few) else weights
        if isinstance(learned, Law):
            total += learned.log_density(values[f"{group.name}_weights_{parent}"])
    return total


def _log_density_of_vector(point, loc, cov, df: float | None) -> float:
    if df:
        return scipy.stats.multivariate_t.logpdf(point, loc, cov, df=df)
    return scipy.stats.multivariate_normal.logpdf(point, loc, cov)


def _log_density_of_reward(family: str, reward: float, predictor: float, noise) -> float:
    if family == "bernoulli":
        return scipy.stats.bernoulli.logpmf(int(reward), 1 / (1 + np.exp(-predictor)))
    if family == "poisson":
        return scipy.stats.poisson.logpmf(int(reward), np.exp(predictor))
    return scipy.stats.norm.logpdf(reward, predictor, noise)
