"""A level: a group of parameter vectors of the same kind, and what they depend on."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from .arrays import as_count, as_numbers, is_concrete
from .covariance import check_covariance, is_joint, scale_tril
from .pytrees import register_declaration
from .rewards import Reward, check_positive_law
from .weights import Weights, as_weights, check_weights, is_learned

__all__ = ["RESERVED_NAMES", "Level"]

RESERVED_NAMES = ("reward", "reward_noise", "observation")


@dataclass(frozen=True, eq=False, repr=False)
class Level:
    """`size` vectors `N(g(mean_i + sum_l W_il parent_l), cov_i)` (Aouali et al. 2023, Eq. 1).

    Args:
        name: what the level is called; the NumPyro site of its vectors has this name.
        size: how many vectors it has.
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
        centered: whether the program samples the vectors themselves, or (False) standardised ones in
            a site `<name>_base` from which the vectors follow. The law is the same; samplers prefer
            the second where few data meet a learned scale.
        labels: names of the vectors, for tables and pictures.
    """

    name: str
    size: int
    _: KW_ONLY
    parents: Mapping[str, Any] | None = None
    mean: Any = 0.0
    cov: Any = 1.0
    scale: Distribution | None = None
    link: Callable[[Array], Array] | None = None
    family: Callable[[Array, Array], Distribution] | None = None
    centered: bool = True
    labels: Sequence[str] | None = None

    def __post_init__(self):
        _check_name(self.name)
        here = f"level '{self.name}'"
        put = lambda field, value: object.__setattr__(self, field, value)  # noqa: E731
        put("size", as_count(self.size, f"{here}: size"))
        put("parents", _as_parents(self.parents, here))
        put("mean", as_numbers(self.mean, f"{here}: mean"))
        _check_scale(self.scale, self.cov, here)
        put("cov", as_numbers(self.cov, f"{here}: cov"))
        _check_link(self.link, bool(self.parents), here)
        _check_family(self.family, here)
        if not isinstance(self.centered, bool):
            raise TypeError(f"{here}: centered is {self.centered!r}; expected True or False")
        put("labels", _as_labels(self.labels, self.size, here))

    @property
    def is_linear_gaussian(self) -> bool:
        """Whether the level is Gaussian around a known linear function of its parents."""
        return not self.why_not_linear_gaussian

    @property
    def why_not_linear_gaussian(self) -> str:
        """What keeps this level out of the exact algebra, or an empty string."""
        if self.family is not None:
            return "has a family of its own"
        if self.scale is not None:
            return "learns its scale"
        learned = [
            parent for parent, weights in (self.parents or {}).items() if is_learned(weights)
        ]
        if learned:
            return f"learns its weights for '{learned[0]}'"
        return "has a link" if self.link is not None else ""

    def label_of(self, vector: int) -> str:
        """The label of a vector, or "movie 3" where the level has no labels."""
        return self.labels[vector] if self.labels else f"{self.name} {vector}"

    def site_names(self) -> list[str]:
        """Every NumPyro site and plate that the level adds to a program."""
        parents = self.parents or {}
        names = [self.name, f"{self.name}_plate"]
        names += [f"{self.name}_scale"] if self.scale is not None else []
        names += [f"{self.name}_base"] if not self.centered else []
        return names + [f"{self.name}_weights_{p}" for p, w in parents.items() if is_learned(w)]

    def check(self, sizes: Mapping[str, int], dim: int) -> None:
        """Refuse what does not fit a hierarchy with these level sizes and this dimension."""
        here = f"level '{self.name}'"
        for parent, weights in (self.parents or {}).items():
            what = f"{here}: weights for parent '{parent}'"
            check_weights(weights, self.size, sizes[parent], dim, what)
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

    def __repr__(self) -> str:
        given = [f"'{self.name}', {self.size}"]
        given += [f"parents={sorted(self.parents)}"] if self.parents else []
        return f"Level({', '.join(given)})"


register_declaration(
    Level,
    arrays=("parents", "mean", "cov", "scale"),
    static=("name", "size", "link", "family", "centered", "labels"),
)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"level name {name!r}; expected letters, digits and underscores, such as 'movie': it "
            "becomes the name of a NumPyro site"
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
            f"{here}: scale is {scale!r}; expected a NumPyro distribution of an unknown standard "
            "deviation. A known one is declared by cov=<variance>"
        )
    # An array of one is the default too: it is what a level declared by `dataclasses.replace` holds.
    if not (isinstance(cov, float | int | Array) and is_concrete(cov) and np.array_equal(cov, 1.0)):
        raise ValueError(f"{here}: got both cov and scale; give the known cov or the learned scale")


def _check_link(link: Any, has_parents: bool, here: str) -> None:
    if link is None:
        return
    if not callable(link):
        raise TypeError(f"{here}: link is {link!r}; expected a function such as jax.nn.sigmoid")
    if not has_parents:
        raise ValueError(
            f"{here}: has a link but no parents to apply it to; give parents, or set mean directly"
        )


def _check_shape_kept(link: Callable[[Array], Array], shape: tuple[int, ...], here: str) -> None:
    try:
        result = jax.eval_shape(link, jax.ShapeDtypeStruct(shape, jnp.result_type(float)))
        given = f"turns shape {shape} into {result.shape}" if result.shape != shape else None
    except Exception as error:
        raise ValueError(f"{here}: link fails on an array of shape {shape}: {error}") from error
    if given:
        raise ValueError(f"{here}: link {given}; expected an elementwise function, which keeps it")


def _check_family(family: Any, here: str) -> None:
    if family is None:
        return
    if isinstance(family, Reward) or (isinstance(family, type) and issubclass(family, Reward)):
        raise TypeError(
            f"{here}: family is the reward family {family!r}; a reward belongs in "
            "Hierarchy(levels, reward=...). A level's family is a function "
            "family(loc, scale_tril) that returns a NumPyro distribution"
        )
    if isinstance(family, Distribution) or not callable(family):
        raise TypeError(
            f"{here}: family is {family!r}; expected a function family(loc, scale_tril) that returns "
            "a NumPyro distribution, such as lambda loc, tril: MultivariateStudentT(4.0, loc, tril)"
        )


def _check_family_shape(level: Level, dim: int) -> None:
    """Call the family abstractly: it must return a distribution of the level's vectors."""
    assert level.family is not None
    joint = level.scale is None and is_joint(level.cov, level.size, dim)
    shape = (level.size * dim,) if joint else (level.size, dim)
    if level.scale is None:
        tril = scale_tril(level.cov, dim)
    else:
        tril = jnp.broadcast_to(jnp.eye(dim), (*level.scale.shape()[:-1], dim, dim))
    here = f"level '{level.name}': family(loc, scale_tril)"
    returned = []

    def draw(loc: Array, tril: Array, key: Array) -> Any:
        assert level.family is not None
        returned.append(level.family(loc, tril))
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
    if not level.centered and not _is_location_scale(level.family, shape):
        raise ValueError(
            f"{here} is not a location-scale family, so its vectors are not loc + scale_tril @ base; "
            "declare the level with centered=True"
        )


def _is_location_scale(
    family: Callable[[Array, Array], Distribution], shape: tuple[int, ...]
) -> bool:
    """Whether `family(loc, T)` is the law of `loc + T z` with `z ~ family(0, I)`, at probe points."""
    n = shape[-1]
    with jax.ensure_compile_time_eval():
        key_loc, key_tril, key_z = jax.random.split(jax.random.key(0), 3)
        loc, z = jax.random.normal(key_loc, shape), jax.random.normal(key_z, shape)
        tril = jnp.tril(jax.random.uniform(key_tril, (n, n), minval=0.5, maxval=1.5))
        with warnings.catch_warnings():
            # A point outside the support of the family is an answer here, not an accident.
            warnings.simplefilter("ignore")
            moved = family(loc, tril).log_prob(loc + z @ tril.T)
            standard = family(jnp.zeros(shape), jnp.eye(n)).log_prob(z)
        expected = standard - jnp.log(jnp.diag(tril)).sum()
    # A family that closes over traced numbers cannot be asked here: it is believed.
    if not is_concrete(moved, expected):
        return True
    return bool(np.allclose(moved, expected, rtol=1e-3, atol=1e-3))


def _as_labels(labels: Any, size: int, here: str) -> tuple[str, ...] | None:
    if labels is None:
        return None
    given = tuple(labels) if isinstance(labels, Iterable) else ()
    if isinstance(labels, str) or not given or not all(isinstance(label, str) for label in given):
        raise TypeError(f"{here}: labels are {labels!r}; expected a sequence of {size} strings")
    labels = given
    if len(labels) != size or len(set(labels)) != size:
        raise ValueError(
            f"{here}: got {len(labels)} labels, {len(set(labels))} of them different; "
            f"expected {size} different ones, one per vector"
        )
    return labels
