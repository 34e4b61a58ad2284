"""Well-scaled linear-Gaussian hierarchies and data for tests of backends, corner cases included.

All numbers are NumPy's, in float64: mixts is told them by `Model.hierarchy`, the reference reads them.
"""

from typing import NamedTuple

import numpy as np

from hierarchies import COVARIANCES, NAMES, Few, Group, Model, Rows, covariance

__all__ = ["CONTEXTS", "Case", "case", "crossed_effects", "mixing", "rows", "three_levels"]

WEIGHTS = ["scalars", "matrices", "sparse", "padded"]
CONTEXTS = ["different", "repeated", "one direction", "some zero"]


class Case(NamedTuple):
    """A model and what was seen of it."""

    model: Model
    rows: Rows

    def __repr__(self) -> str:
        """Structure and sizes: the numbers are too many to print."""
        levels = [
            f"{group.name} {group.size} x, cov {np.shape(group.cov)}, parents "
            f"{ {name: _form(weights) for name, weights in group.parents.items()} }"
            for group in self.model.groups
        ]
        return f"Case({'; '.join(levels)}; dim {self.model.dim}, n {len(self.rows.rewards)})"


def _form(weights) -> str:
    return f"Few {weights.indices.shape}" if isinstance(weights, Few) else f"{weights.shape}"


def mixing(
    form: str, size: int, parent_size: int, dim: int, rng, few: int | None = None
) -> np.ndarray | Few:
    """Weights under which a level's vectors are about as large as its parents'.

    `few` is how many parents a vector has where they are sparse.
    """
    scalars = (size, parent_size)
    if form == "scalars":
        return rng.normal(size=scalars) * (rng.random(scalars) < 0.8) / np.sqrt(parent_size)
    if form == "matrices":
        return rng.normal(size=(*scalars, dim, dim)) / np.sqrt(parent_size * dim)
    m = few or parent_size
    indices = np.array([rng.permutation(parent_size)[:m] for _ in range(size)])
    # `Sparse` reads the number of parents off the largest index, so that must not vary by chance.
    indices[0, 0] = indices[0, 0] if parent_size - 1 in indices else parent_size - 1
    values = rng.normal(size=(size, m)) / np.sqrt(m)
    if form == "padded":
        # A column of padding that names a parent of the row again, or for the first time.
        indices = np.column_stack([indices, rng.integers(0, parent_size, size)])
        values = np.column_stack([values, np.zeros(size)])
    return Few(indices, values)


def rows(model: Model, n: int, rng, contexts: str = "different", taken: int | None = None) -> Rows:
    """`n` observations of the first `taken` actions, with contexts of about unit length.

    Repeated contexts and those along one direction make G singular.
    """
    dim, size = model.dim, model.groups[-1].size
    x = rng.normal(size=(n, dim)) / np.sqrt(dim)
    if contexts == "repeated":
        x = x[rng.integers(0, 2, n)] if n > 1 else x
    elif contexts == "one direction":
        x = rng.normal(size=(n, 1)) * rng.normal(size=dim) / np.sqrt(dim)
    elif contexts == "some zero":
        x = x * (rng.random((n, 1)) < 0.7)
    return Rows(x, rng.integers(0, taken or size, n), rng.normal(scale=2.0, size=n))


def case(structure: int, seed: int) -> Case:
    """One to four levels, any arrows and forms; variances and noise between about 0.3 and 3.

    `structure` decides all shapes, so that one compilation serves every `seed`, which decides the
    numbers, what kind of contexts there are, and which actions are never taken.
    """
    shapes, rng = np.random.default_rng(structure), np.random.default_rng(seed)
    depth, dim = int(shapes.integers(1, 5)), int(shapes.integers(1, 6))
    sizes = [int(shapes.choice([1, 2, 4])) for _ in range(depth)]
    groups = []
    for child, (size, parents) in enumerate(zip(sizes, _arrows(depth, shapes), strict=True)):
        forms = [form for form in COVARIANCES if form != "joint" or not parents]
        weights = {}
        for parent in parents:
            form, few = shapes.choice(WEIGHTS), int(shapes.integers(1, sizes[parent] + 1))
            weights[NAMES[parent]] = mixing(form, size, sizes[parent], dim, rng, few)
        group = Group(
            NAMES[child],
            size,
            parents=weights,
            mean=rng.normal(size=[(), (dim,), (size, dim)][shapes.integers(3)]),
            cov=covariance(shapes.choice(forms), size, dim, rng),
        )
        groups.append(group)
    model = Model(groups, dim, noise=rng.uniform(0.3, 2.0))
    n = int(shapes.choice([0, 1, 5, 40, 200], p=[0.05, 0.1, 0.15, 0.3, 0.4]))
    taken = int(rng.integers(1, sizes[-1] + 1))
    return Case(model, rows(model, n, rng, rng.choice(CONTEXTS), taken))


def _arrows(depth: int, rng) -> list[list[int]]:
    """The parents of each level: any of those above it, and no level without children."""
    parents = [{int(p) for p in range(i) if rng.random() < 0.5} for i in range(depth)]
    for level in range(depth - 1):
        if not any(level in above for above in parents):
            parents[rng.integers(level + 1, depth)].add(level)
    return [sorted(above) for above in parents]


def three_levels(seed: int = 0, dim: int = 2) -> Model:
    """Correlated roots, matrices, a padded sparse row, an arrow past a level, and intercepts."""
    rng = np.random.default_rng(seed)
    zone = Group("zone", 2, mean=rng.normal(size=(2, dim)), cov=covariance("joint", 2, dim, rng))
    brand = Group(
        "brand",
        3,
        parents={"zone": mixing("matrices", 3, 2, dim, rng)},
        cov=covariance("matrices", 3, dim, rng),
    )
    few = Few(np.array([[0, 1], [1, 1], [0, 0], [1, 0]]), rng.normal(size=(4, 2)))
    few.values[1:3, 1] = 0.0
    item = Group(
        "item",
        4,
        parents={"zone": few, "brand": mixing("scalars", 4, 3, dim, rng)},
        mean=rng.normal(size=(4, dim)),
        cov=covariance("matrix", 4, dim, rng),
    )
    return Model([zone, brand, item], dim, noise=0.7)


def crossed_effects(seed: int = 0, dim: int = 2, joint: bool = True) -> Model:
    """Two levels of effects, correlated or not, under actions that mix both."""
    rng = np.random.default_rng(seed)
    zone = Group(
        "zone",
        2,
        mean=rng.normal(size=(2, dim)),
        cov=covariance("joint" if joint else "matrices", 2, dim, rng),
    )
    brand = Group("brand", 3, mean=rng.normal(size=dim), cov=covariance("diagonal", 3, dim, rng))
    few = Few(np.array([[0, 2], [1, 1], [2, 0], [1, 2], [0, 1]]), rng.normal(size=(5, 2)))
    few.values[1, 1] = 0.0
    item = Group(
        "item",
        5,
        parents={"zone": mixing("matrices", 5, 2, dim, rng), "brand": few},
        mean=rng.normal(size=dim),
        cov=covariance("matrices", 5, dim, rng),
    )
    return Model([zone, brand, item], dim, noise=0.7)
