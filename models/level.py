"""A level: a group of parameter vectors of the same kind, and what they depend on."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Any

import equinox as eqx
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from .arrays import as_count, as_numbers, is_known
from .covariance import Covariance, as_covariance, check_covariance
from .declaration import Declaration
from .exactness import Obstacle
from .families import (
    check_family,
    check_family_shape,
    check_link,
    check_shape_kept,
    has_zero_variance,
    is_centered_by_default,
)
from .kernels import Kernel
from .labels import as_labels, check_name, label_index
from .laws import as_one_event, check_real_law, is_gaussian
from .messages import short
from .spreads import (
    Spread,
    as_cov,
    as_kernel,
    as_scale,
    check_spread,
    describe_numbers,
    describe_spread,
    known_spread,
    kronecker,
    spread_laws,
    spread_of,
)
from .weights import Weights, as_operator, as_weights, has_single_arrows

__all__ = ["Level", "are_single", "check_mean"]


class Level(Declaration):
    """`size` vectors `N(g(mean_i + sum_l W_il parent_l), cov_i)` (Aouali et al. 2023, Eq. 1).

    Args:
        name: the name of the level, and of the NumPyro site of its vectors.
        size: the number of vectors.
        parents: parent level's name -> weights: `(size, parent_size)` numbers,
            `(size, parent_size, dim, dim)` matrices, `Sparse`, or a NumPyro distribution over them
            (learned; site `<name>_weights_<parent>`). A zero weight is a missing arrow.
        mean: the prior mean of a level without parents; with parents, an intercept added to the
            weighted sum. A number, `(dim,)` or `(size, dim)`, or a NumPyro distribution of one of these
            shapes (learned; site `<name>_mean`). Where that is Gaussian, a level above with weights of one
            says the same, and is integrated out exactly.
        cov: the covariance of a vector given its parents: a variance, a `(dim,)` diagonal (of which some
            may be zero: there a vector is exactly its mean and the weighted sum of its parents), a
            `(dim, dim)` matrix, one matrix per vector `(size, dim, dim)`; without parents also the
            joint `(size * dim, size * dim)`. Or a NumPyro distribution over `(dim, dim)` matrices, such
            as `LKJCovariance` (learned; site `<name>_cov`).
        scale: instead of `cov`, a NumPyro distribution of an unknown standard deviation, of shape
            `()`, `(dim,)`, `(size, 1)` or `(size, dim)` (learned; site `<name>_scale`). Or a list with an
            entry for each coordinate, a known standard deviation or the distribution of an unknown one
            (sites `<name>_scale_<coordinate>`).
        kernel: how the vectors of a level without parents are correlated with one another, such as
            `AR1(0.9)`; `cov` or `scale` is then that of one vector. Its numbers may be learned too (sites
            `<name>_<number>`).
        link: elementwise function `g` (Appendix E.3).
        family: `family(loc, scale_tril)` gives the distribution that replaces the Gaussian.
        centered: whether the program samples the vectors themselves (True), or standardised ones in a
            site `<name>_base` that are then scaled and shifted (False). The law is the same, but with
            a learned scale and few data samplers explore only the second form well. None, the
            default, is False where the scale is learned, unless the family is not a location-scale
            family, and True elsewhere. The attribute is True or False.
        labels: names of the vectors, for agents, tables and pictures: strings, or anything hashable.
        branching: whether every vector has one parent at most, as in a tree: then the parent level need
            not be kept jointly. None, the default, looks at the weights; False keeps it jointly all the
            same. The attribute is True or False.
        drift: None, where vectors stay what they are; or the covariance of the step that each takes from
            one round to the next, in the forms of `cov` but the joint one. What a vector differs by
            from the weighted sum of its parents is then a random walk, which begins with `cov`. Time
            passes when `Backend.advance` says so, as `simulate` and an `Agent` do.

    Example:
        >>> import numpyro.distributions as dist
        >>> weights = [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
        >>> movie = Level("movie", 3, parents={"genre": weights}, scale=dist.HalfNormal(1.0))
        >>> movie, movie.centered, movie.why_not_linear_gaussian
        (Level('movie', 3, parents=['genre']), False, 'learns its scale')
    """

    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    _: KW_ONLY
    parents: Mapping[str, Any] | None = None
    mean: Any = 0.0
    cov: Any = 1.0
    scale: Any = None
    kernel: Kernel | None = None
    link: Callable[[Array], Array] | None = eqx.field(default=None, static=True)
    family: Callable[[Array, Array], Distribution] | None = eqx.field(default=None, static=True)
    centered: bool | None = eqx.field(default=None, static=True)
    labels: Sequence[Hashable] | None = eqx.field(default=None, static=True)
    branching: bool | None = eqx.field(default=None, static=True)
    drift: Any = None

    def __post_init__(self):
        check_name(self.name)
        here = f"level '{self.name}'"
        self.size = as_count(self.size, f"{here}: size")
        self.parents = _as_parents(self.parents, here)
        if not isinstance(self.mean, Distribution):
            self.mean = as_numbers(self.mean, f"{here}: mean")
        self.scale = as_scale(self.scale, self.cov, here)
        self.cov = as_cov(self.cov, here)
        self.kernel = as_kernel(self.kernel, bool(self.parents), here)
        check_link(self.link, bool(self.parents), here)
        check_family(self.family, here)
        if self.centered is None:
            self.centered = is_centered_by_default(self)
        elif not isinstance(self.centered, bool):
            raise TypeError(f"{here}: centered is {short(self.centered)}; expected True or False")
        if self.centered and has_zero_variance(self.cov):
            raise ValueError(
                f"{here}: a variance of zero has no density around its parents; expected centered=False, "
                "or leave it out"
            )
        if self.labels is not None:
            self.labels = as_labels(self.labels, self.size, here)
        self.branching = _as_branching(self.branching, list(self.arrows.values()), here)
        if self.drift is not None:
            self.drift = as_numbers(self.drift, f"{here}: drift")

    @property
    def is_linear_gaussian(self) -> bool:
        """Whether the level is Gaussian around a known linear function of its parents."""
        return self.obstacle is None

    @property
    def obstacle(self) -> Obstacle | None:
        """What keeps this level out of the exact algebra, or None."""
        if self.family is not None:
            return Obstacle.FAMILY
        if self.learns_mean:
            return Obstacle.MEAN
        if self.scale is not None:
            return Obstacle.SCALE
        if isinstance(self.cov, Distribution):
            return Obstacle.COV
        if self.learns_spread:
            return Obstacle.KERNEL
        if self.learned_weights:
            return Obstacle.WEIGHTS
        return None if self.link is None else Obstacle.LINK

    @property
    def why_not_linear_gaussian(self) -> str:
        """The obstacle in words, or an empty string."""
        obstacle = self.obstacle
        if obstacle is None:
            return ""
        which = f" for '{self.learned_weights[0]}'" if obstacle is Obstacle.WEIGHTS else ""
        if obstacle is Obstacle.MEAN and is_gaussian(self.mean):
            which = ", which as a level above, with weights of one, would be integrated out exactly"
        return obstacle.value + which

    @property
    def learns_mean(self) -> bool:
        """Whether the mean is unknown."""
        return isinstance(self.mean, Distribution)

    @property
    def learns_spread(self) -> bool:
        """Whether the scale, the covariance or a number of the kernel is unknown."""
        return bool(spread_laws(self))

    @property
    def arrows(self) -> dict[str, Any]:
        """Parent level's name -> its weights as an operator; see `mixts.models.weights`."""
        return {parent: as_operator(weights) for parent, weights in (self.parents or {}).items()}

    @property
    def learned_weights(self) -> list[str]:
        """The parents whose weights are unknown."""
        return [parent for parent, arrows in self.arrows.items() if arrows.is_learned]

    @property
    def has_own_means(self) -> bool:
        """Whether every vector has a mean of its own."""
        return len(self.mean.shape() if self.learns_mean else self.mean.shape) == 2

    @property
    def has_own_covs(self) -> bool:
        """Whether every vector has a covariance of its own."""
        return not isinstance(self.cov, Distribution) and self.cov.ndim == 3

    def is_joint(self, dim: int) -> bool:
        """Whether a covariance ties all vectors of the level together."""
        if self.kernel is not None or isinstance(self.cov, Distribution):
            return self.kernel is not None
        return as_covariance(self.cov, self.size, dim).is_joint

    def covariance(self, dim: int) -> Covariance:
        """The covariance as an operator, where it is known; see `mixts.models.covariance`."""
        if isinstance(self.cov, Distribution) or (self.kernel is not None and self.kernel.unknowns):
            raise ValueError(f"level '{self.name}' {self.why_not_linear_gaussian}: it is not known")
        return (
            as_covariance(self.cov, self.size, dim) if self.kernel is None else kronecker(self, dim)
        )

    def spread(self, values: Mapping[str, Any], dim: int) -> Spread:
        """The spread given the numbers that are unknown, by the names of their sites."""
        return spread_of(self, values, dim)

    def walk(self, dim: int) -> Covariance:
        """The covariance of a step of the random walk as an operator, where the level drifts."""
        return as_covariance(self.drift, self.size, dim)

    def arguments(self) -> dict[str, Any]:
        """What it was made with: a known cov or a learned scale, and centring that is not the default."""
        unused = {"scale" if self.scale is None else "cov"}
        if self.centered == is_centered_by_default(self):
            unused.add("centered")  # with another scale the default may be another
        return {name: value for name, value in super().arguments().items() if name not in unused}

    def remade(self, **changes: Any) -> "Level":
        """The same with other arguments, checked anew; other weights may have other arrows."""
        if "parents" in changes and self.branching:
            changes = {"branching": None} | changes
        return super().remade(**changes)

    @property
    def coordinates(self) -> np.ndarray:
        """(size,) the labels of the vectors, or their positions: the axis of a table."""
        return label_index(range(self.size) if self.labels is None else self.labels)

    def label_of(self, vector: int) -> str:
        """The label of a vector, or "movie 3" where the level has no labels."""
        return str(self.labels[vector]) if self.labels else f"{self.name} {vector}"

    @property
    def scale_site(self) -> str:
        """The site of a learned scale."""
        return f"{self.name}_scale"

    @property
    def mean_site(self) -> str:
        """The site of a learned mean."""
        return f"{self.name}_mean"

    @property
    def cov_site(self) -> str:
        """The site of a learned covariance."""
        return f"{self.name}_cov"

    def kernel_site(self, number: str) -> str:
        """The site of a learned number of the kernel."""
        return f"{self.name}_{number}"

    def weights_site(self, parent: str) -> str:
        """The site of learned weights."""
        return f"{self.name}_weights_{parent}"

    def site_names(self) -> list[str]:
        """Every NumPyro site and plate that the level adds to a program."""
        names = [self.name, f"{self.name}_plate"]
        names += [self.mean_site] if self.learns_mean else []
        names += spread_laws(self)
        names += [f"{self.name}_base"] if not self.centered else []
        names += [f"{self.name}_steps"] if self.drift is not None else []
        return names + [self.weights_site(parent) for parent in self.learned_weights]

    def unknowns(self, sizes: Mapping[str, int], dim: int) -> dict[str, Distribution]:
        """Site name -> law, as one event, of the numbers that are learned, under levels of these sizes."""
        arrows = self.arrows
        laws = {
            self.weights_site(parent): arrows[parent].law(self.size, sizes[parent], dim)
            for parent in self.learned_weights
        }
        if self.learns_mean:
            laws[self.mean_site] = as_one_event(self.mean, [self.mean.shape()], "mean")
        return laws | spread_laws(self)

    def given(self, values: Mapping[str, Any], dim: int) -> "Level":
        """The level with known numbers, by the names of their sites, in place of those it learns."""
        changes = known_spread(self, values, dim)
        if self.learns_mean:
            changes["mean"] = values[self.mean_site]
        if self.learned_weights:
            known = {
                p: self.arrows[p].with_values(values[self.weights_site(p)])
                for p in self.learned_weights
            }
            changes["parents"] = {**(self.parents or {}), **known}
        return self.remade(**changes) if changes else self

    def check(self, sizes: Mapping[str, int], dim: int) -> None:
        """Refuse what does not fit a hierarchy with these level sizes and this dimension."""
        here = f"level '{self.name}'"
        for parent, arrows in self.arrows.items():
            arrows.check(self.size, sizes[parent], dim, f"{here}: weights for parent '{parent}'")
        check_mean(self.mean, self.size, dim, here)
        check_spread(self, dim)
        if self.drift is not None:
            check_covariance(
                self.drift,
                self.size,
                dim,
                has_parents=True,
                what=f"{here}: drift",
                may_be_zero=False,
            )
        if self.link is not None:
            check_shape_kept(self.link, (self.size, dim), here)
        if self.family is not None:
            check_family_shape(self, dim)

    def describe(self, sizes: Mapping[str, int]) -> str:
        """The law of the vectors in one line, under levels of these sizes."""
        mean = describe_numbers(self.mean, "mean")
        arrows = self.arrows.items()
        terms = [f"{parent} ({weights.describe(sizes[parent])})" for parent, weights in arrows]
        loc = " + ".join([*([] if terms and mean == "0" else [mean]), *terms])
        if self.link is not None:
            loc = f"{getattr(self.link, '__name__', 'link')}({loc})"
        spread = describe_spread(self)
        if self.drift is not None:
            spread += f", drift {describe_numbers(self.drift, 'given')}"
        family = "Normal" if self.family is None else getattr(self.family, "__name__", "family")
        return f"{family}({loc}; {spread}{'' if self.centered else ', non-centred'})"

    def __repr__(self) -> str:
        given = [f"'{self.name}', {self.size}"]
        given += [f"parents={sorted(self.parents)}"] if self.parents else []
        return f"Level({', '.join(given)})"


def _as_parents(parents: Any, here: str) -> dict[str, Weights]:
    if parents is None:
        return {}
    if not isinstance(parents, Mapping):
        raise TypeError(
            f"{here}: parents is a {type(parents).__name__}; expected a dict from a parent level's "
            "name to its weights, such as {'genre': weights}"
        )
    # Sorted, as JAX sorts the keys of a dict, so that sites come in one order inside and outside jit.
    return {
        parent: as_weights(parents[parent], f"{here}: weights for parent '{parent}'")
        for parent in sorted(parents, key=str)
    }


def _as_branching(branching: Any, arrows: list[Any], here: str) -> bool:
    found = are_single(arrows)
    if branching is None:
        return found
    if not isinstance(branching, bool):
        raise TypeError(f"{here}: branching is {short(branching)}; expected True or False")
    if branching and not found and all(is_known(weights.values, 0, 2, 4) for weights in arrows):
        raise ValueError(f"{here}: branching is True, but some vectors have more than one parent")
    return branching


def are_single(arrows: list[Any]) -> bool:
    """Whether every vector is known to have one arrow at most."""
    return not arrows or (len(arrows) == 1 and has_single_arrows(arrows[0]))


def check_mean(mean: Any, size: int, dim: int, here: str) -> None:
    """Refuse a mean, or a law of it, of the wrong shape."""
    shapes = list(dict.fromkeys([(), (dim,), (size, dim)]))
    if isinstance(mean, Distribution):
        return check_real_law(mean, shapes, f"{here}: mean")
    if mean.shape not in shapes:
        raise ValueError(
            f"{here}: mean has shape {mean.shape}; expected {' or '.join(map(str, shapes))}"
        )
