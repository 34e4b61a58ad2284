"""`LinkLevels`: levels above actions that depend on them through a link.

Aouali et al. 2023, Appendix E.3. Given the levels above, actions and Gaussian rewards stay exact, so
actions are integrated out exactly: what action `i` says of its displacement
`D_i = g(mu_i + Gamma_i z) - mu_i` is Gaussian, `exp(-|A_i D_i - r_i|^2 / 2)`, as without a link. What is
left, a density of `z` alone, is approximated by a Gaussian at its mode (Laplace).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Bool, Float

from .action_blocks import ActionState, Innovation, innovations_of
from .joint_levels import JointEffects, JointLevels
from .levels import Outcome

__all__ = ["LinkLevels"]

_MOST_STEPS = 40
# Where a search ends on a flat stretch of the link, it starts anew from so many draws of the prior.
_STARTS = 8
# A row of data that is this many standard deviations off, and finds no slope, calls for a move.
_CALLING = 3.0


class _Climb(NamedTuple):
    """A search for the mode: where it stands, and whether it has ended."""

    z: Float[Array, " N"]
    settled: Bool[Array, ""]
    count: Array


class LinkLevels(JointLevels):
    """The levels above as one vector, Gaussian at the mode of its density.

    Every reward moves the mode, so `absorb` and `condition` both find it anew from all that is known of
    the actions, at O(K d N^2) a step of Gauss and Newton's method.
    """

    @property
    def is_exact(self) -> bool:
        return False

    def absorb(
        self, effects: JointEffects, innovation: Innovation, actions: ActionState
    ) -> tuple[JointEffects, Outcome]:
        return self.given_actions(effects, actions)

    def condition(
        self, effects: JointEffects, innovations: Innovation, actions: ActionState
    ) -> tuple[JointEffects, Outcome]:
        return self.given_actions(effects, actions)

    def given_actions(
        self, effects: JointEffects, actions: ActionState
    ) -> tuple[JointEffects, Outcome]:
        """The mode of `z` and the curvature there, from where `effects` stands.

        Where a link is flat, data that call for a move find no slope to move along. Then draws of the
        prior are tried as well, and the highest mode is taken.
        """
        said = innovations_of(self.model, actions)
        first = self._climb(said, _Climb(effects.mean, jnp.zeros((), bool), jnp.int32(0)))
        flat = self._is_called(said, first.z)
        prior = self.prior
        noise = jax.random.normal(jax.random.key(0), (_STARTS, len(prior.mean)), prior.mean.dtype)
        starts = prior.mean + noise @ prior.root.T
        # Settled from the beginning, so that nothing is computed, unless there is need.
        again = _Climb(starts, jnp.repeat(~flat, _STARTS), jnp.zeros(_STARTS, jnp.int32))
        again = jax.vmap(lambda climb: self._climb(said, climb))(again)
        energies = jax.vmap(lambda z: self._energy(said, z))(again.z)
        best = jnp.argmin(jnp.where(jnp.isfinite(energies), energies, jnp.inf))
        higher = flat & (energies[best] < self._energy(said, first.z))
        found = jax.tree.map(lambda new, old: jnp.where(higher, new[best], old), again, first)

        safe, bend = self._linearise(said, found.z)
        root = self.absorb_rows(self.before_data(), safe)[0].root
        bent = self._bend(root, bend)
        definite = jnp.isfinite(bent).all()
        root = jnp.where(definite, bent, root)
        outcome = Outcome(
            unconverged=~found.settled,
            indefinite=~definite,
            unmoved=flat & ~higher & (found.z == effects.mean).all(),
        )
        return JointEffects(found.z, root, jnp.zeros_like(root)), outcome

    def _climb(self, said: Innovation, start: _Climb) -> _Climb:
        """Steps of Gauss and Newton's method, whose curvature is never indefinite.

        They go only as far as the density rises.
        """
        tolerance = 100 * jnp.finfo(start.z.dtype).eps
        fractions = 0.5 ** jnp.arange(8.0)

        def step(climb: _Climb) -> _Climb:
            z, here = climb.z, self._energy(said, climb.z)
            linear, _ = self._linearise(said, z)
            towards = self.absorb_rows(self.before_data(), linear)[0].mean - z
            energies = jax.vmap(lambda share: self._energy(said, z + share * towards))(fractions)
            energies = jnp.where(jnp.isfinite(energies), energies, jnp.inf)
            best = jnp.argmin(energies)
            better = energies[best] < here
            moved = jnp.where(better, z + fractions[best] * towards, z)
            settled = ~better | (here - energies[best] <= tolerance * (1.0 + jnp.abs(here)))
            return _Climb(moved, settled, climb.count + 1)

        def unsettled(climb: _Climb) -> Bool[Array, ""]:
            return ~climb.settled & (climb.count < _MOST_STEPS)

        return jax.lax.while_loop(unsettled, step, start)

    def _energy(self, said: Innovation, z: Float[Array, " N"]) -> Float[Array, ""]:
        """Minus the log density of `z`, up to a constant."""
        whitened = solve_triangular(self.prior.root, z - self.prior.mean, lower=True)
        return 0.5 * (whitened @ whitened + jnp.sum(jnp.square(self._residuals(said, z))))

    def _residuals(self, said: Innovation, z: Float[Array, " N"]) -> Float[Array, " n"]:
        """`r_i - A_i D_i`."""
        D = self.model.displacements(self.model.arrows.split(z)).T[said.action]
        return said.residual - jnp.sum(said.direction * D, axis=-1)

    def _slopes(
        self, z: Float[Array, " N"]
    ) -> tuple[Float[Array, "K d"], Float[Array, "K d"], Float[Array, "K d"]]:
        """`Gamma_i z`, and the link's first and second derivative there."""
        model, link = self.model, self.model.link
        assert link is not None
        rows = model.arrows.all_rows(model.arrows.split(z))
        at = model.mean + rows

        def steepness(u: Array) -> Array:
            return jax.jvp(link, (u,), (jnp.ones_like(u),))[1]

        first, second = jax.jvp(steepness, (at,), (jnp.ones_like(at),))
        return rows.T, first.T, second.T

    def _linearise(
        self, said: Innovation, z: Float[Array, " N"]
    ) -> tuple[Innovation, Float[Array, "K d"]]:
        """What is said to first order around `z`, and how the link bends it: (K, d) precisions."""
        rows, first, second = self._slopes(z)
        left = self._residuals(said, z)
        pull = jnp.zeros_like(rows).at[said.action].add(said.direction * left[:, None])
        direction = said.direction * first[said.action]
        residual = left + jnp.sum(direction * rows[said.action], axis=-1)
        return said._replace(direction=direction, residual=residual), -pull * second

    def _bend(self, root: Float[Array, "N N"], bend: Float[Array, "K d"]) -> Float[Array, "N N"]:
        """A root with the given precisions of each `Gamma_i z` added; NaN if that is not definite."""

        def add_chunk(total: Array, chunk: Array) -> tuple[Array, None]:
            rows = jax.vmap(self.model.arrows.dense_row)(chunk) @ root
            own = bend.at[chunk].get(mode="fill", fill_value=0.0)
            return total + jnp.einsum("kdn,kd,kdm->nm", rows, own, rows), None

        chunks = -(-self.model.num_actions // self.chunk)
        sweep = jnp.arange(chunks * self.chunk).reshape(chunks, self.chunk)
        added, _ = jax.lax.scan(add_chunk, jnp.eye(len(root), dtype=root.dtype), sweep)
        return solve_triangular(jnp.linalg.cholesky(added), root.T, lower=True).T

    def _is_called(self, said: Innovation, z: Float[Array, " N"]) -> Bool[Array, ""]:
        """Whether some data are far from what is expected at `z`, and the link is flat there."""
        _, first, _ = self._slopes(z)
        flat = ((first[said.action] == 0) & (said.direction != 0)).any(-1)
        return (flat & (jnp.abs(self._residuals(said, z)) > _CALLING)).any()
