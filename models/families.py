"""Links and families: the functions by which a user replaces parts of a level's law, and checks of them."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from .arrays import is_concrete, is_known
from .messages import short
from .rewards import Reward

if TYPE_CHECKING:
    from .level import Level

__all__ = [
    "check_family",
    "check_family_shape",
    "check_link",
    "check_shape_kept",
    "has_zero_variance",
    "is_centered_by_default",
]


def check_link(link: Any, has_parents: bool, here: str) -> None:
    """Refuse a link that is no function, or has no parents to apply it to."""
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


def check_shape_kept(link: Callable[[Array], Array], shape: tuple[int, ...], here: str) -> None:
    """Refuse a link that is not elementwise."""
    try:
        result = jax.eval_shape(link, jax.ShapeDtypeStruct(shape, jnp.result_type(float)))
    except Exception as error:
        raise ValueError(f"{here}: link fails on an array of shape {shape}: {error}") from error
    if result.shape != shape:
        raise ValueError(
            f"{here}: link turns shape {shape} into {result.shape}; expected an elementwise function, "
            "which keeps it"
        )


def check_family(family: Any, here: str) -> None:
    """Refuse a family that is not a function."""
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


def check_family_shape(level: "Level", dim: int) -> None:
    """Call the family abstractly: it must return a distribution of the level's vectors."""
    family: Any = level.family
    here = f"level '{level.name}': family(loc, scale_tril)"
    tril, joint, diagonal = _form_of_root(level, dim)
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


def _form_of_root(level: "Level", dim: int) -> tuple[Array, bool, bool]:
    """A root of the form that the family is given, whether it is joint, and whether diagonal."""
    if not level.learns_spread:
        covariance = level.covariance(dim)
        return covariance.scale_tril(), covariance.is_joint, covariance.is_diagonal
    if level.kernel is not None:
        return jnp.eye(level.size * dim), True, False
    if isinstance(level.scale, Distribution):
        own = level.scale.shape()[:-1]
        return jnp.broadcast_to(jnp.eye(dim), (*own, dim, dim)), False, True
    return jnp.eye(dim), False, level.scale is not None


def has_zero_variance(cov: Any) -> bool:
    """Whether a variance or a diagonal is known to hold zero."""
    return is_known(cov, 0, 1) and not bool(np.asarray(cov).all())


def is_centered_by_default(level: "Level") -> bool:
    """Whether the program samples the vectors themselves, unless the user says otherwise."""
    if not level.learns_spread and has_zero_variance(level.cov):
        return False  # a Gaussian without any variance has no density
    if not level.learns_spread or level.family is None:
        return not level.learns_spread
    # The dimension is not known yet, where no law has it: those of one number fit any.
    dim, shape = 2, getattr(level.scale, "shape", tuple)()
    if isinstance(level.scale, tuple):
        dim = len(level.scale)
    elif isinstance(level.cov, Distribution):
        dim = level.cov.event_shape[-1]
    elif shape:
        dim = shape[-1]
    try:
        tril, joint, diagonal = _form_of_root(level, dim)
        vectors = (len(tril),) if joint else (level.size, dim)
        return not _is_location_scale(level.family, vectors, diagonal)
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
