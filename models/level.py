"""A level: a group of parameter vectors of the same kind, and what they depend on."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from .arrays import as_count, as_numbers, is_concrete, is_known
from .covariance import Covariance, as_covariance, check_covariance
from .declaration import Declaration
from .exactness import Obstacle
from .laws import check_positive_law, law_name
from .messages import short
from .rewards import Reward
from .weights import Weights, as_operator, as_weights

__all__ = ["RESERVED_NAMES", "Level"]

LONGEST_NAME = 100  # letters
RESERVED_NAMES = ("reward", "reward_noise", "observation")


class Level(Declaration):
    """`size` vectors `N(g(mean_i + sum_l W_il parent_l), cov_i)` (Aouali et al. 2023, Eq. 1).

    Args:
        name: the name of the level, and of the NumPyro site of its vectors.
        size: the number of vectors.
        parents: parent level's name -> weights: `(size, parent_size)` numbers,
            `(size, parent_size, dim, dim)` matrices, `Sparse`, or a NumPyro distribution over them
            (learned; site `<name>_weights_<parent>`). A zero weight is a missing arrow.
        mean: the prior mean of a level without parents; with parents, an intercept added to the
            weighted sum. A number, `(dim,)` or `(size, dim)`.
        cov: the known covariance of a vector given its parents: a variance, a `(dim,)` diagonal, a
            `(dim, dim)` matrix, one matrix per vector `(size, dim, dim)`; without parents also the
            joint `(size * dim, size * dim)`.
        scale: instead of `cov`, a NumPyro distribution of an unknown standard deviation, of shape
            `()`, `(dim,)`, `(size, 1)` or `(size, dim)` (learned; site `<name>_scale`).
        link: elementwise function `g` (Appendix E.3).
        family: `family(loc, scale_tril)` gives the distribution that replaces the Gaussian.
        centered: whether the program samples the vectors themselves (True), or standardised ones in a
            site `<name>_base` that are then scaled and shifted (False). The law is the same, but with
            a learned scale and few data samplers explore only the second form well. None, the
            default, is False where the scale is learned, unless the family is not a location-scale
            family, and True elsewhere. The attribute is True or False.
        labels: names of the vectors, for tables and pictures.

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
    scale: Distribution | None = None
    link: Callable[[Array], Array] | None = eqx.field(default=None, static=True)
    family: Callable[[Array, Array], Distribution] | None = eqx.field(default=None, static=True)
    centered: bool | None = eqx.field(default=None, static=True)
    labels: Sequence[str] | None = eqx.field(default=None, static=True)

    def __post_init__(self):
        _check_name(self.name)
        here = f"level '{self.name}'"
        self.size = as_count(self.size, f"{here}: size")
        self.parents = _as_parents(self.parents, here)
        self.mean = as_numbers(self.mean, f"{here}: mean")
        _check_scale(self.scale, self.cov, here)
        self.cov = as_numbers(self.cov, f"{here}: cov")
        _check_link(self.link, bool(self.parents), here)
        _check_family(self.family, here)
        if self.centered is None:
            self.centered = _is_centered_by_default(self)
        elif not isinstance(self.centered, bool):
            raise TypeError(f"{here}: centered is {short(self.centered)}; expected True or False")
        self.labels = _as_labels(self.labels, self.size, here)

    @property
    def is_linear_gaussian(self) -> bool:
        """Whether the level is Gaussian around a known linear function of its parents."""
        return self.obstacle is None

    @property
    def obstacle(self) -> Obstacle | None:
        """What keeps this level out of the exact algebra, or None."""
        if self.family is not None:
            return Obstacle.FAMILY
        if self.scale is not None:
            return Obstacle.SCALE
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
        return obstacle.value + which

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
        return self.mean.ndim == 2

    def covariance(self, dim: int) -> Covariance:
        """The covariance as an operator; see `mixts.models.covariance`."""
        return as_covariance(self.cov, self.size, dim)

    def arguments(self) -> dict[str, Any]:
        """What it was made with: a known cov or a learned scale, and centring that is not the default."""
        unused = {"scale" if self.scale is None else "cov"}
        if self.centered == _is_centered_by_default(self):
            unused.add("centered")  # with another scale the default may be another
        return {name: value for name, value in super().arguments().items() if name not in unused}

    def label_of(self, vector: int) -> str:
        """The label of a vector, or "movie 3" where the level has no labels."""
        return self.labels[vector] if self.labels else f"{self.name} {vector}"

    def site_names(self) -> list[str]:
        """Every NumPyro site and plate that the level adds to a program."""
        names = [self.name, f"{self.name}_plate"]
        names += [f"{self.name}_scale"] if self.scale is not None else []
        names += [f"{self.name}_base"] if not self.centered else []
        return names + [f"{self.name}_weights_{parent}" for parent in self.learned_weights]

    def check(self, sizes: Mapping[str, int], dim: int) -> None:
        """Refuse what does not fit a hierarchy with these level sizes and this dimension."""
        here = f"level '{self.name}'"
        for parent, arrows in self.arrows.items():
            arrows.check(self.size, sizes[parent], dim, f"{here}: weights for parent '{parent}'")
        forms = [(), (dim,), (self.size, dim)]
        if self.mean.shape not in forms:
            raise ValueError(
                f"{here}: mean has shape {self.mean.shape}; "
                f"expected {' or '.join(map(str, dict.fromkeys(forms)))}"
            )
        if self.scale is None:
            has_parents = bool(self.parents)
            check_covariance(self.cov, self.size, dim, has_parents=has_parents, what=f"{here}: cov")
        else:
            shapes = [(), (dim,), (self.size, 1), (self.size, dim)]
            check_positive_law(self.scale, shapes, f"{here}: scale")
        if self.link is not None:
            _check_shape_kept(self.link, (self.size, dim), here)
        if self.family is not None:
            _check_family_shape(self, dim)

    def describe(self, sizes: Mapping[str, int]) -> str:
        """The law of the vectors in one line, under levels of these sizes."""
        mean = _describe_numbers(self.mean, "mean")
        arrows = self.arrows.items()
        terms = [f"{parent} ({weights.describe(sizes[parent])})" for parent, weights in arrows]
        loc = " + ".join([*([] if terms and mean == "0" else [mean]), *terms])
        if self.link is not None:
            loc = f"{getattr(self.link, '__name__', 'link')}({loc})"
        spread = f"cov {_describe_numbers(self.cov, 'given')}"
        if self.scale is not None:
            spread = f"scale ~ {law_name(self.scale)}"
        family = "Normal" if self.family is None else getattr(self.family, "__name__", "family")
        return f"{family}({loc}; {spread}{'' if self.centered else ', non-centred'})"

    def __repr__(self) -> str:
        given = [f"'{self.name}', {self.size}"]
        given += [f"parents={sorted(self.parents)}"] if self.parents else []
        return f"Level({', '.join(given)})"


def _describe_numbers(numbers: Any, word: str) -> str:
    if is_known(numbers, 0):
        return f"{float(numbers):g}"
    shape = getattr(numbers, "shape", ())
    return f"{word} {shape}" if shape else word


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"level name {short(name)}; expected letters, digits and underscores, such as 'movie': it "
            "becomes the name of a NumPyro site"
        )
    if len(name) > LONGEST_NAME:
        raise ValueError(
            f"level name {short(name, 40)} has {len(name):,} letters; expected at most {LONGEST_NAME}"
        )
    if name in RESERVED_NAMES:
        raise ValueError(
            f"level name '{name}' is reserved (as are {', '.join(RESERVED_NAMES)}); the program has "
            "a site or plate of that name: choose another"
        )


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


def _check_scale(scale: Any, cov: Any, here: str) -> None:
    if scale is None:
        if isinstance(cov, Distribution):
            raise TypeError(
                f"{here}: cov is a distribution; an unknown spread is declared by "
                "scale=<distribution of the standard deviation>"
            )
        return
    if not isinstance(scale, Distribution):
        raise TypeError(
            f"{here}: scale is {short(scale)}; expected a NumPyro distribution of an unknown standard "
            "deviation. A known one is declared by cov=<variance>"
        )
    # An array of one is the default too: it is what a level declared by `dataclasses.replace` holds.
    if not (isinstance(cov, float | int | Array) and is_concrete(cov) and np.array_equal(cov, 1.0)):
        raise ValueError(f"{here}: got both cov and scale; give the known cov or the learned scale")


def _check_link(link: Any, has_parents: bool, here: str) -> None:
    if link is None:
        return
    if not callable(link):
        raise TypeError(
            f"{here}: link is {short(link)}; expected a function such as jax.nn.sigmoid"
        )
    if not has_parents:
        raise ValueError(
            f"{here}: has a link but no parents to apply it to; give parents, or set mean directly"
        )


def _check_shape_kept(link: Callable[[Array], Array], shape: tuple[int, ...], here: str) -> None:
    try:
        result = jax.eval_shape(link, jax.ShapeDtypeStruct(shape, jnp.result_type(float)))
    except Exception as error:
        raise ValueError(f"{here}: link fails on an array of shape {shape}: {error}") from error
    if result.shape != shape:
        raise ValueError(
            f"{here}: link turns shape {shape} into {result.shape}; expected an elementwise function, "
            "which keeps it"
        )


def _check_family(family: Any, here: str) -> None:
    if family is None:
        return
    if isinstance(family, Reward) or (isinstance(family, type) and issubclass(family, Reward)):
        raise TypeError(
            f"{here}: family is the reward family {short(family)}; a reward belongs in "
            "Hierarchy(levels, reward=...). A level's family is a function "
            "family(loc, scale_tril) that returns a NumPyro distribution"
        )
    if isinstance(family, Distribution) or not callable(family):
        raise TypeError(
            f"{here}: family is {short(family)}; expected a function family(loc, scale_tril) that returns "
            "a NumPyro distribution, such as lambda loc, tril: MultivariateStudentT(4.0, loc, tril)"
        )


def _check_family_shape(level: Level, dim: int) -> None:
    """Call the family abstractly: it must return a distribution of the level's vectors."""
    family: Any = level.family
    here = f"level '{level.name}': family(loc, scale_tril)"
    if level.scale is None:
        covariance = level.covariance(dim)
        tril, joint, diagonal = covariance.scale_tril(), covariance.is_joint, covariance.is_diagonal
    else:
        tril = jnp.broadcast_to(jnp.eye(dim), (*level.scale.shape()[:-1], dim, dim))
        joint, diagonal = False, True
    shape = (level.size * dim,) if joint else (level.size, dim)
    returned = []

    def draw(loc: Array, tril: Array, key: Array) -> Any:
        returned.append(family(loc, tril))
        return returned[0].sample(key) if isinstance(returned[0], Distribution) else None

    try:
        drawn = jax.eval_shape(draw, jnp.zeros(shape), tril, jax.random.key(0))
    except Exception as error:
        raise ValueError(
            f"{here} fails on loc of shape {shape} and scale_tril of shape {tril.shape}: {error}"
        ) from error
    law = returned[0]
    if not isinstance(law, Distribution):
        raise TypeError(f"{here} returned a {type(law).__name__}; expected a NumPyro distribution")
    if drawn.shape != shape or law.event_shape != shape[-1:]:
        raise ValueError(
            f"{here} gives draws of shape {drawn.shape} and event shape {law.event_shape}; expected "
            f"{shape} and {shape[-1:]}: a distribution of vectors, such as MultivariateStudentT, or "
            "one of numbers made so by .to_event(1)"
        )
    if not level.centered and _is_location_scale(family, shape, diagonal) is False:
        raise ValueError(
            f"{here} is not a location-scale family, so its vectors are not loc + scale_tril @ base; "
            "declare the level with centered=True"
        )


def _is_centered_by_default(level: Level) -> bool:
    if level.scale is None or level.family is None:
        return level.scale is None
    # The dimension is not known yet: a scale of one number fits any.
    dim = level.scale.shape()[-1] if level.scale.shape() else 2
    try:
        return not _is_location_scale(level.family, (level.size, dim), diagonal=True)
    except Exception:  # reported by `check`, once there is a dimension to try it with
        return True


def _is_location_scale(
    family: Callable[[Array, Array], Distribution], shape: tuple[int, ...], diagonal: bool
) -> bool | None:
    """Whether `family(loc, T)` is the law of `loc + T z` with `z ~ family(0, I)`, at probe points.

    None where that cannot be seen: the family closes over traced numbers.
    """
    n = shape[-1]
    with jax.ensure_compile_time_eval():
        key_loc, key_tril, key_z = jax.random.split(jax.random.key(0), 3)
        loc, z = jax.random.normal(key_loc, shape), jax.random.normal(key_z, shape)
        tril = jnp.tril(jax.random.uniform(key_tril, (n, n), minval=0.5, maxval=1.5))
        tril = tril * jnp.eye(n) if diagonal else tril
        with warnings.catch_warnings():
            # A point outside the support of the family is an answer here, not an accident.
            warnings.simplefilter("ignore")
            moved = family(loc, tril).log_prob(loc + z @ tril.T)
            standard = family(jnp.zeros(shape), jnp.eye(n)).log_prob(z)
        expected = standard - jnp.log(jnp.diag(tril)).sum()
    if not is_concrete(moved, expected):
        return None
    return np.allclose(moved, expected, rtol=1e-3, atol=1e-3)


def _as_labels(labels: Any, size: int, here: str) -> tuple[str, ...] | None:
    if labels is None:
        return None
    given = tuple(labels) if isinstance(labels, Iterable) else ()
    if isinstance(labels, str) or not given or not all(isinstance(label, str) for label in given):
        raise TypeError(
            f"{here}: labels are {short(labels)}; expected a sequence of {size} strings"
        )
    if len(given) != size or len(set(given)) != size:
        raise ValueError(
            f"{here}: got {len(given)} labels, {len(set(given))} of them different; "
            f"expected {size} different ones, one per vector"
        )
    return tuple(map(str, given))  # NumPy's own strings count as arrays
