"""Random trees of any depth, also below levels that cross, for tests of what keeps them in blocks."""

from dataclasses import replace
from typing import Any

import numpy as np

from gaussian_models import mixing
from hierarchies import Few, Group, Model, covariance

__all__ = ["any_tree", "neighbour", "random_tree"]

COVARIANCES = ["variance", "matrices", "matrix", "diagonal"]
WEIGHTS = ["sparse", "matrices", "numbers"]


def one_parent(form: str, size: int, num_parents: int, dim: int, rng) -> np.ndarray | Few:
    """Weights of one parent each; the first vector has none, and some parents have no children."""
    parents, values = rng.integers(0, num_parents, size), rng.normal(size=size) / 2 + 1
    values[0] = 0.0
    if form == "sparse":
        return Few(parents[:, None], values[:, None])
    numbers = np.zeros((size, num_parents))
    numbers[np.arange(size), parents] = values
    matrices = rng.normal(size=(size, 1, dim, dim)) / np.sqrt(dim)
    return numbers if form == "numbers" else numbers[..., None, None] * matrices


def random_tree(
    sizes: list[int],
    dim: int,
    *,
    crossed: bool = False,
    forms: list[str] | None = None,
    seed: int = 0,
) -> Model:
    """Levels below one another; `crossed` puts two correlated levels above, which cross.

    `forms` are those of the weights, top to bottom: by default each in turn.
    """
    rng = np.random.default_rng(seed)
    names = [f"level_{i}" for i in range(len(sizes))]
    groups = []
    for i, (name, size) in enumerate(zip(names, sizes, strict=True)):
        parents = {}
        if i:
            form = forms[i - 1] if forms else WEIGHTS[i % 3]
            parents = {names[i - 1]: one_parent(form, size, sizes[i - 1], dim, rng)}
        elif crossed:
            parents = {
                "zone": mixing("matrices", size, 2, dim, rng),
                "maker": mixing("scalars", size, 3, dim, rng),
            }
            groups = [
                Group("zone", 2, cov=covariance("joint", 2, dim, rng)),
                Group("maker", 3, mean=rng.normal(size=dim)),
            ]
        cov, mean = covariance(COVARIANCES[i % 4], size, dim, rng), rng.normal(size=(size, dim))
        groups.append(Group(name, size, parents=parents, mean=mean, cov=cov))
    return Model(groups, dim, noise=0.6)


def any_tree(seed: int) -> Model:
    """Two to six levels, d from 1 to 5, with or without two levels that cross on top."""
    rng = np.random.default_rng(seed)
    crossed = bool(rng.integers(2))
    depth = int(rng.integers(1 if crossed else 2, 5 if crossed else 7))
    sizes = sorted(rng.integers(1, 7, depth).tolist())
    forms = [str(form) for form in rng.choice(WEIGHTS, depth - 1)]
    dim = int(rng.integers(1, 6))
    return random_tree(sizes, dim, crossed=crossed, forms=forms, seed=seed)


def neighbour(model: Model, seed: int = 0) -> Model:
    """A model with the same arrows and other numbers, close enough that covariances are positive."""
    rng = np.random.default_rng(seed)

    def moved(numbers: Any) -> Any:
        if isinstance(numbers, Few):
            return Few(numbers.indices, moved(numbers.values))
        old = np.asarray(numbers)
        return old + 0.2 * rng.normal(size=old.shape) * (old != 0)

    def scattered(cov: Any) -> np.ndarray:
        cov = np.asarray(cov)
        if cov.ndim < 2:
            return cov * rng.uniform(0.5, 1.5, cov.shape)
        step = rng.normal(size=cov.shape)
        return cov + 0.05 * (step + np.swapaxes(step, -1, -2)) / cov.shape[-1]

    groups = [
        replace(
            group,
            mean=moved(group.mean),
            cov=scattered(group.cov),
            parents={name: moved(weights) for name, weights in group.parents.items()},
        )
        for group in model.groups
    ]
    return replace(model, groups=groups, noise=model.noise * rng.uniform(0.8, 1.2))
