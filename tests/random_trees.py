"""Random trees of any depth, also below levels that cross, for tests of what keeps them in blocks."""

import numpy as np

from gaussian_models import mixing
from hierarchies import Few, Group, Model, covariance

__all__ = ["random_tree"]

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
