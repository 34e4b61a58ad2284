"""`Unknowns`: what is unknown in a hierarchy besides its vectors.

The third of three questions that a posterior answers; the other two are `messages` and `levels` in
`mixts.inference.gaussian`. Learned scales, weights and noise are a few numbers, each with a law. Given
them, all numbers of the hierarchy are known, and the exact algebra takes what is left. The program
samples them by their laws; a mixture of exact posteriors needs their laws and the hierarchy given them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
from numpyro.distributions import Distribution

from .messages import listed

if TYPE_CHECKING:
    from .hierarchy import Hierarchy

__all__ = ["Unknowns"]


class Unknowns(eqx.Module):
    """The unknown numbers of a hierarchy, by the names of their sites in its program.

    Attributes:
        hierarchy: the declaration, in which they are distributions.

    Example:
        >>> from mixts.models import Gaussian, linear
        >>> hierarchy = linear([[1.0], [1.0]], dim=1).remade(reward=Gaussian(dist.HalfNormal(1.0)))
        >>> list(hierarchy.unknowns.laws)
        ['reward_noise']
        >>> hierarchy.unknowns.given({"reward_noise": 0.5}).reward
        Gaussian(noise=0.5)
    """

    hierarchy: "Hierarchy"

    @property
    def laws(self) -> dict[str, Distribution]:
        """Site name -> law, each one event, in the order of the program."""
        levels, dim = self.hierarchy.levels, self.hierarchy.dim
        sizes = {level.name: level.size for level in levels}
        laws: dict[str, Distribution] = {}
        for level in levels:
            laws |= level.unknowns(sizes, dim)
        return laws | self.hierarchy.reward.unknowns

    def given(self, values: Mapping[str, Any]) -> "Hierarchy":
        """The hierarchy with known numbers in place of the unknown ones.

        Works inside `jit` and `vmap`, where values are not checked.
        """
        laws = self.laws
        if set(values) != set(laws):
            raise ValueError(
                f"got values of {listed(sorted(values))}; expected one of each unknown: "
                f"{listed(sorted(laws)) or 'there are none'}"
            )
        levels = [level.given(values, self.hierarchy.dim) for level in self.hierarchy.levels]
        return self.hierarchy.remade(levels=levels, reward=self.hierarchy.reward.given(values))
