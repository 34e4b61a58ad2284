"""What a hierarchy declares as unknown, as parts that `empirical_bayes` varies, and the laws as a penalty.

A scale, a noise, an LKJ covariance and a mean are varied as known ones are: through standard deviations and
roots, which may be zero. What has other limits, such as a correlation, or a law that keeps it from zero, is
varied on the real line, through the transform that samplers use. The penalty is the log density of
each number as it was declared, so flat laws give maximum likelihood.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.transforms import biject_to

from ...models import Hierarchy, Level, LKJCovariance
from .parts import Part

__all__ = ["FAR", "DeclaredUnknowns", "start_values", "unknown_parts"]

# How far a number between two limits goes towards them, on the real line: to about 3e-7 of the way.
FAR = 15.0
# A standard deviation below this is this: its logarithm, in a law of it, has to be finite.
_TINY = 1e-30


def unknown_parts(hierarchy: Hierarchy) -> tuple[Part, ...]:
    """A part for each thing that is declared as unknown, from the noise up to the top level."""
    parts: list[Part] = []
    for site, law in hierarchy.reward.unknowns.items():
        is_noise = site == "reward_noise" and _may_be_zero(law)
        parts.append(Part("noise" if is_noise else "number", site=site))
    for level in reversed(hierarchy.levels):
        parts += _parts_of(level, hierarchy)
    return tuple(parts)


def _parts_of(level: Level, hierarchy: Hierarchy) -> list[Part]:
    sizes = {each.name: each.size for each in hierarchy.levels}
    laws = level.unknowns(sizes, hierarchy.dim)
    parts = _whole_parts(level)
    taken = {site for part in parts for site in sites_of(part, level)}
    return parts + [Part("number", level.name, site=site) for site in laws if site not in taken]


def _whole_parts(level: Level) -> list[Part]:
    """The mean and the covariance, where they are varied as known ones are."""
    parts = []
    if isinstance(level.scale, tuple):
        learned = [i for i, part in enumerate(level.scale) if isinstance(part, Distribution)]
        if all(_may_be_zero(level.scale[i]) for i in learned):
            parts.append(Part("cov", level.name, site=level.scale_site, coordinates=tuple(learned)))
    elif level.scale is not None:
        if len(level.scale.shape()) < 2 and _may_be_zero(level.scale):
            parts.append(Part("cov", level.name, site=level.scale_site))
    elif isinstance(level.cov, LKJCovariance) and _may_be_zero(level.cov.scale):
        parts.append(Part("cov", level.name, site=level.cov_site))
    if level.learns_mean and _base(level.mean) is constraints.real:
        parts.append(Part("mean", level.name, site=level.mean_site))
    return parts


def sites_of(part: Part, level: Level | None) -> list[str]:
    """The sites that a part stands for."""
    if part.coordinates is None or level is None:
        return [part.site]
    return [f"{part.site}_{i}" for i in part.coordinates]


def _base(law: Distribution) -> Any:
    """The support of one number of a law."""
    support: Any = law.support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return constraints.real if support is constraints.real_vector else support


def _may_be_zero(law: Distribution) -> bool:
    """Whether a law of positive numbers has a finite density at zero, and no other limit."""
    if _base(law) not in (constraints.positive, constraints.nonnegative):
        return False
    with jax.ensure_compile_time_eval():
        near = [np.asarray(law.log_prob(jnp.full(law.shape(), at))) for at in (1e-6, 1e-12)]
    return bool(np.isfinite(near).all() and np.abs(near[0] - near[1]).max() < 0.1)


def start_values(hierarchy: Hierarchy) -> dict[str, Array]:
    """A value of every unknown to start from: where samplers would begin, and weights from their law."""
    values = {}
    weights = {lv.weights_site(p) for lv in hierarchy.levels for p in lv.learned_weights}
    for site, law in hierarchy.unknowns.laws.items():
        if site in weights:
            values[site] = law.sample(jax.random.key(0))
        else:
            transform = biject_to(law.support)
            values[site] = transform(jnp.zeros(transform.inverse_shape(law.shape())))
    return values


class DeclaredUnknowns(eqx.Module):
    """The unknowns of a hierarchy as functions of free numbers.

    Attributes:
        hierarchy: the declaration, in which they are distributions.
        start: a value of every unknown.
        has_prior: whether their laws count.
    """

    hierarchy: Hierarchy
    start: dict[str, Array]
    has_prior: bool = eqx.field(static=True)

    def free(self, part: Part) -> Array:
        """The free numbers of what is varied on the real line."""
        law = self.hierarchy.unknowns.laws[part.site]
        return jnp.asarray(biject_to(law.support).inv(self.start[part.site]))

    def value(self, part: Part, numbers: Array) -> Array:
        """What free numbers on the real line stand for."""
        law = self.hierarchy.unknowns.laws[part.site]
        if hasattr(_base(law), "upper_bound") or _base(law) is constraints.unit_interval:
            # Rounding must not put it on the limit itself.
            numbers = FAR * jnp.tanh(numbers / FAR)
        return jnp.asarray(biject_to(law.support)(numbers))

    def given(self, values: Mapping[str, Array]) -> Hierarchy:
        """The known hierarchy with some values of the unknowns, and the rest as they start."""
        return self.hierarchy.unknowns.given(self.start | dict(values))

    def values(self, part: Part, numbers: Array) -> dict[str, Array]:
        """Site -> value, of a part whose numbers are given in the units of the declaration.

        They are standard deviations, a root of the covariance, a mean or, of a number, its value.
        """
        if part.what != "cov":
            return {part.site: numbers}
        if numbers.ndim > 1:
            root = jnp.tril(numbers)
            return {part.site: root @ root.T}
        deviations = jnp.sqrt(jnp.square(numbers) + _TINY)
        if part.coordinates is None:
            return {part.site: deviations}
        return dict(zip(sites_of(part, self.hierarchy[part.level]), deviations, strict=True))

    def log_prior(self, part: Part, numbers: Array) -> Float[Array, ""]:
        """The log density of a part, as declared, with numbers as `values` takes them."""
        if not self.has_prior:
            return jnp.zeros(())
        laws = self.hierarchy.unknowns.laws
        if part.what == "cov" and numbers.ndim > 1:
            law = laws[part.site]
            assert isinstance(law, LKJCovariance)
            return law.log_density_of_root(jnp.tril(numbers))
        total = jnp.zeros(())
        for site, value in self.values(part, numbers).items():
            law = laws[site]
            if isinstance(law, LKJCovariance):
                total += jnp.asarray(law.log_density_of_parts(value))
            else:
                total += jnp.asarray(law.log_prob(value))
        return total
