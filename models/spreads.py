"""How the vectors of a level spread around their parents, where some of its numbers are learned.

A level has a known `cov`, a law of it, or the law of a `scale` of standard deviations, of which some may be
known; and perhaps a kernel over its vectors. Each unknown has a site of its own.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from .arrays import as_numbers, is_concrete, is_known
from .covariance import Kronecker, as_covariance, check_covariance, variance_of_each
from .covariance_laws import check_covariance_law
from .kernels import Kernel
from .laws import check_positive_law, law_name
from .messages import short

if TYPE_CHECKING:
    from .level import Level

__all__ = [
    "Spread",
    "as_cov",
    "as_kernel",
    "as_scale",
    "check_spread",
    "describe_numbers",
    "describe_spread",
    "known_spread",
    "kronecker",
    "refuse_distribution",
    "spread_laws",
    "spread_of",
]


# Names of a level's sites begin with the level's own name and one of these.
_TAKEN = ("mean", "scale", "cov", "base", "plate", "weights")


class Spread(NamedTuple):
    """How vectors spread: standard deviations of each number, or a Cholesky factor.

    Attributes:
        deviation: (), (dim,), (size, 1) or (size, dim); None where there is a factor.
        tril: (dim, dim), (size, dim, dim) or, where it is joint, that of all numbers of the level.
        is_joint: whether the vectors are tied together.
    """

    deviation: Array | None
    tril: Array | None = None
    is_joint: bool = False


# What a user writes ------------------------------------------------------------------------------


def as_scale(scale: Any, cov: Any, here: str) -> Any:
    """A law of standard deviations, or a tuple with a number or a law for each coordinate; or None."""
    if scale is None:
        return None
    if isinstance(scale, list | tuple):
        scale = _as_parts(scale, here)
    elif not isinstance(scale, Distribution):
        raise TypeError(
            f"{here}: scale is {short(scale)}; expected a NumPyro distribution of an unknown standard "
            "deviation, or a list with a distribution or a known number for each coordinate. A known one "
            "is declared by cov=<variance>"
        )
    # An array of one is the default too: it is what a level declared by `dataclasses.replace` holds.
    is_number = isinstance(cov, float | int | Array) and is_concrete(cov)
    if not (is_number and np.array_equal(cov, 1.0)):
        raise ValueError(f"{here}: got both cov and scale; give the known cov or the learned scale")
    return scale


def _as_parts(parts: Any, here: str) -> tuple[Any, ...]:
    """One entry for each coordinate: a known standard deviation, or the law of an unknown one."""
    if not any(isinstance(part, Distribution) for part in parts):
        raise TypeError(
            f"{here}: scale is {short(parts)}, in which nothing is learned; a known spread is declared by "
            "cov=<variances>, and a learned one is a NumPyro distribution"
        )
    return tuple(
        part if isinstance(part, Distribution) else _as_deviation(part, f"{here}: scale[{i}]")
        for i, part in enumerate(parts)
    )


def _as_deviation(part: Any, what: str) -> Any:
    """A known standard deviation, which may be zero."""
    number = as_numbers(part, what)
    if number.ndim:
        raise ValueError(f"{what} has shape {number.shape}; expected one number")
    if is_concrete(number) and float(number) < 0:
        raise ValueError(f"{what} is {float(number):g}; expected a positive number, or zero")
    return number


def as_cov(cov: Any, here: str) -> Any:
    """A covariance as numbers, or as the law of a matrix."""
    if not isinstance(cov, Distribution):
        numbers = as_numbers(cov, f"{here}: cov")
        if is_concrete(cov, numbers):
            given = np.asarray(cov, np.float64)
            lost = given[(given != 0) & (np.asarray(numbers) == 0)]
            if lost.size and numbers.ndim <= 1:
                raise ValueError(
                    f"{here}: cov holds the variance {lost[0]:g}, which is zero in {numbers.dtype}; "
                    "expected a larger one, or zero itself: measure rewards in other units, or use float64"
                )
        return numbers
    if cov.event_dim < 2:
        refuse_distribution(cov, here)
    return cov


def refuse_distribution(cov: Any, here: str) -> None:
    """Refuse a distribution of numbers where a covariance is expected."""
    if isinstance(cov, Distribution):
        raise TypeError(
            f"{here}: cov is a distribution of numbers; an unknown spread is declared by "
            "scale=<distribution of the standard deviation>, or by cov=<distribution of covariance "
            "matrices>, such as LKJCovariance(dim)"
        )


def as_kernel(kernel: Any, has_parents: bool, here: str) -> Kernel | None:
    """A kernel, which only a level without parents may have."""
    if kernel is None:
        return None
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"{here}: kernel is {short(kernel)}; expected one of mixts's kernels, such as AR1(0.9) or "
            "Relationship(matrix)"
        )
    taken = [name for name in kernel.unknowns if name.split("_")[0] in _TAKEN]
    if taken:
        raise ValueError(
            f"{here}: the kernel {short(kernel)} learns '{taken[0]}', which is the name of another site of "
            "a level; give that number another name"
        )
    if has_parents:
        raise ValueError(
            f"{here}: has parents and a kernel, which ties all vectors of a level together; only a level "
            "without parents takes one: declare the vectors that are correlated as a level above, with "
            "weights of one"
        )
    return kernel


def check_spread(level: "Level", dim: int) -> None:
    """Refuse a spread that does not fit vectors of this dimension."""
    here, size, kernel = f"level '{level.name}'", level.size, level.kernel
    if kernel is not None:
        kernel.check(size, f"{here}: kernel")
        _check_matrix(kernel, size, f"{here}: kernel")
    if isinstance(level.scale, tuple):
        if len(level.scale) != dim:
            raise ValueError(
                f"{here}: scale has {len(level.scale)} entries; expected {dim}, a number or a "
                "distribution for each coordinate"
            )
        for i, part in enumerate(level.scale):
            if isinstance(part, Distribution):
                check_positive_law(part, [()], f"{here}: scale[{i}]")
    elif level.scale is not None:
        own = [(size, 1), (size, dim)] if kernel is None else []
        check_positive_law(level.scale, [(), (dim,), *own], f"{here}: scale")
    elif isinstance(level.cov, Distribution):
        check_covariance_law(level.cov, dim, f"{here}: cov")
    elif kernel is not None and level.cov.shape not in ((), (dim,), (dim, dim)):
        raise ValueError(
            f"{here}: cov has shape {level.cov.shape}; beside a kernel expected (), ({dim},) or "
            f"{(dim, dim)}: the covariance of one vector"
        )
    else:
        has_parents = bool(level.parents)
        check_covariance(level.cov, size, dim, has_parents=has_parents, what=f"{here}: cov")


def _check_matrix(kernel: Kernel, size: int, here: str) -> None:
    """Refuse a kernel of another form or, where its numbers are known, not positive definite."""

    def factor(key: Array) -> Array:
        # Values of the right shapes, which are computed in shapes only.
        laws = kernel.unknowns.items()
        return kernel.given({name: law.sample(key) for name, law in laws}).root(size)

    shape = jax.eval_shape(factor, jax.random.key(0)).shape
    if shape != (size, size):
        raise ValueError(f"{here} gives a matrix of shape {shape}; expected {(size, size)}")
    if kernel.unknowns or not is_concrete(kernel):
        return
    with jax.ensure_compile_time_eval():
        root = kernel.root(size)
    if not (np.isfinite(root).all() and (np.diagonal(root) > 0).all()):
        raise ValueError(
            f"{here} {short(kernel)} gives a matrix that is not positive definite in {root.dtype}: vectors "
            "are too much alike; give a larger nugget, a shorter lengthscale or a weaker correlation, or "
            "use float64"
        )


# What is learned ---------------------------------------------------------------------------------


def spread_laws(level: "Level") -> dict[str, Distribution]:
    """Site name -> law, as one event, of what is unknown of the spread."""
    laws: dict[str, Distribution] = {}
    if isinstance(level.scale, tuple):
        parts = enumerate(level.scale)
        laws |= {_part_site(level, i): p for i, p in parts if isinstance(p, Distribution)}
    elif level.scale is not None:
        laws[level.scale_site] = level.scale.to_event(len(level.scale.batch_shape))
    elif isinstance(level.cov, Distribution):
        laws[level.cov_site] = level.cov
    if level.kernel is not None:
        for name, law in level.kernel.unknowns.items():
            laws[level.kernel_site(name)] = law.to_event(len(law.batch_shape))
    return laws


def known_spread(level: "Level", values: Mapping[str, Any], dim: int) -> dict[str, Any]:
    """The arguments of the level with known numbers in place of what is unknown of the spread."""
    changes: dict[str, Any] = {}
    if level.scale is not None:
        variance = jnp.square(_deviations(level, values))
        changes |= {"scale": None, "cov": variance_of_each(variance, level.size, dim)}
    elif isinstance(level.cov, Distribution):
        changes["cov"] = values[level.cov_site]
    if level.kernel is not None and level.kernel.unknowns:
        changes["kernel"] = _known_kernel(level, values)
    return changes


def spread_of(level: "Level", values: Mapping[str, Any], dim: int) -> Spread:
    """The spread given the numbers that are unknown."""
    if level.scale is not None:
        deviation = _deviations(level, values)
        if level.kernel is None:
            return Spread(deviation)
        own = jnp.diag(jnp.broadcast_to(deviation, (dim,)))
    else:
        is_learned = isinstance(level.cov, Distribution)
        cov = jnp.asarray(values[level.cov_site]) if is_learned else level.cov
        covariance = as_covariance(cov, 1 if level.kernel is not None else level.size, dim)
        if level.kernel is None and covariance.is_diagonal:
            return Spread(jnp.sqrt(cov))
        own = covariance.scale_tril()
        if level.kernel is None:
            return Spread(None, own, covariance.is_joint)
    across = _known_kernel(level, values).root(level.size)
    return Spread(None, jnp.kron(across, own), True)


def _part_site(level: "Level", i: int) -> str:
    return f"{level.scale_site}_{i}"


def _deviations(level: "Level", values: Mapping[str, Any]) -> Array:
    """The standard deviations, in the shape in which their law was declared."""
    if not isinstance(level.scale, tuple):
        return jnp.asarray(values[level.scale_site])
    parts = (values.get(_part_site(level, i), part) for i, part in enumerate(level.scale))
    return jnp.stack([jnp.asarray(part, float) for part in parts])


def _known_kernel(level: "Level", values: Mapping[str, Any]) -> Kernel:
    kernel = level.kernel
    assert kernel is not None
    return kernel.given({name: values[level.kernel_site(name)] for name in kernel.unknowns})


# What it is called -------------------------------------------------------------------------------


def describe_spread(level: "Level", *, with_kernel: bool = True) -> str:
    """The scale, the covariance or their law, and the kernel, in a few words."""
    if isinstance(level.scale, tuple):
        text = f"scale ({', '.join(_describe_part(part) for part in level.scale)})"
    elif level.scale is not None:
        text = f"scale ~ {law_name(level.scale)}"
    elif isinstance(level.cov, Distribution):
        text = f"cov ~ {law_name(level.cov)}"
    else:
        text = f"cov {describe_numbers(level.cov, 'given')}"
    return text if level.kernel is None or not with_kernel else f"{text}, {level.kernel!r}"


def _describe_part(part: Any) -> str:
    return (
        f"~ {law_name(part)}" if isinstance(part, Distribution) else describe_numbers(part, "known")
    )


def describe_numbers(numbers: Any, word: str) -> str:
    """One number as it is, others by their shape, unknown ones by their law."""
    if isinstance(numbers, Distribution):
        return f"{word} ~ {law_name(numbers)}"
    if is_known(numbers, 0):
        return f"{float(numbers):g}"
    shape = getattr(numbers, "shape", ())
    return f"{word} {shape}" if shape else word


def kronecker(level: "Level", dim: int) -> Kronecker:
    """The covariance of a level with a known kernel."""
    assert level.kernel is not None
    return Kronecker(level.cov, dim, level.kernel.root(level.size), repr(level.kernel))
