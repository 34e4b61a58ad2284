"""What depth is worth: products at the leaves of trees, as depth and size grow."""

import itertools
from functools import partial

import numpy as np

from ...models import tree
from ..policies.baselines import LinTS
from ..problems.contexts import Box
from ..problems.environment import HierarchyProblem
from .beyond import two_levels
from .paper import exact
from .record import Figure, Panel, lower

__all__ = ["catalogue", "deep_trees"]

DIM = 2
PRODUCTS, DEPTHS = (64, 512, 4096), (1, 2, 4)
POLICIES = {"tree": exact, "leaves' parents": two_levels, "LinTS": LinTS}


def catalogue(products: int, depth: int) -> HierarchyProblem:
    """Products under `depth` levels, every level larger than the one above by the same factor.

    Vectors of products have a variance of 1, of which every level has the same share.
    """
    levels = depth + 1
    sizes = [round(products ** (level / levels)) for level in range(1, levels + 1)]
    parents = [np.arange(size) * above // size for above, size in itertools.pairwise(sizes)]
    share = 1 / levels
    hierarchy = tree(parents, DIM, root_cov=share, covs=share, num_roots=sizes[0])
    return HierarchyProblem(hierarchy, contexts=Box(DIM))


def deep_trees() -> Figure:
    """Regret of the tree, of its last two levels alone, and of products alone."""
    panels = [
        Panel(
            f"tree K={products} depth={depth}",
            f"K = {products:,}, {depth} level{'s' * (depth > 1)} above",
            partial(catalogue, products, depth),
            POLICIES,
            claims=lower(("tree",), ("leaves' parents", "LinTS") if depth > 1 else ("LinTS",)),
            round_seconds=4e-9 * products * depth,
        )
        for products in PRODUCTS
        for depth in DEPTHS
    ]
    return Figure(
        "deep-trees",
        f"Catalogues as trees, d = {DIM}",
        tuple(panels),
        columns=len(DEPTHS),
        source="Hong et al. 2022",
        says="Deeper hierarchies share more, so the regret of a catalogue is lower the more of its levels "
        "are declared.",
    )
