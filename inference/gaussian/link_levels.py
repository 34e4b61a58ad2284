"""`LinkLevels`: levels above actions that depend on them through a link.

Aouali et al. 2023, Appendix E.3. Given the levels above, actions and Gaussian rewards stay exact, so
actions are integrated out exactly: the message of action `i` about its displacement
`D_i = g(mu_i + Gamma_i z) - mu_i` is the Gaussian `exp(-D' M_i D / 2 + k_i' D)`, as without a link. What
is left, a density of `z` alone, is approximated by a Gaussian at its mode (Laplace).
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Bool, Float

from .action_blocks import ActionState, Innovation, Messages, messages_of
from .joint_levels import JointEffects, JointLevels, JointSums, add_up, given_sums
from .levels import Outcome

__all__ = ["LinkLevels"]

_MOST_STEPS = 40


class LinkLevels(JointLevels):
    """The levels above as one vector, Gaussian at the mode of its density.

    Every reward moves the mode, so `absorb` and `condition` both find it anew from all that is known of
    the actions, at O(K d N^2 + N^3) a step of Newton's method.
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

        Steps use Gauss and Newton's curvature, which is never indefinite, and go only as far as the
        density rises.
        """
        prior, messages = self.prior, messages_of(self.model, actions)
        tolerance = 100 * jnp.finfo(prior.mean.dtype).eps
        fractions = 0.5 ** jnp.arange(8.0)

        def energy(z: Float[Array, " N"]) -> Float[Array, ""]:
            whitened = solve_triangular(prior.root, z - prior.mean, lower=True)
            D = self.model.displacements(self.model.arrows.split(z)).T
            quadratic = jnp.einsum("kd,kde,ke->", D, messages.precision, D) / 2
            return 0.5 * whitened @ whitened + quadratic - jnp.sum(messages.vector * D)

        def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            z, _, count = carry
            sums, _ = self._expand(messages, z)
            towards = given_sums(prior, sums).mean - z
            energies = jax.vmap(lambda share: energy(z + share * towards))(fractions)
            best = jnp.argmin(energies)
            here = energy(z)
            better = energies[best] < here
            moved = jnp.where(better, z + fractions[best] * towards, z)
            settled = ~better | (here - energies[best] <= tolerance * (1.0 + jnp.abs(here)))
            return moved, settled, count + 1

        def unsettled(carry: tuple[Array, Array, Array]) -> Bool[Array, ""]:
            return ~carry[1] & (carry[2] < _MOST_STEPS)

        start = (effects.mean, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
        mode, settled, _ = jax.lax.while_loop(unsettled, step, start)
        safe, exact = self._expand(messages, mode)
        root = given_sums(prior, exact).root
        definite = jnp.isfinite(root).all()
        root = jnp.where(definite, root, given_sums(prior, safe).root)
        found = JointEffects(mode, root, jnp.zeros_like(root))
        return found, Outcome(unconverged=~settled, indefinite=~definite)

    def _expand(self, messages: Messages, z: Float[Array, " N"]) -> tuple[JointSums, JointSums]:
        """The messages to second order around `z`, with Gauss and Newton's and the exact curvature."""
        model, link = self.model, self.model.link
        assert link is not None
        rows = model.arrows.all_rows(model.arrows.split(z))
        at = model.mean + rows

        def steepness(u: Array) -> Array:
            return jax.jvp(link, (u,), (jnp.ones_like(u),))[1]

        first, second = jax.jvp(steepness, (at,), (jnp.ones_like(at),))
        first, second, rows, D = first.T, second.T, rows.T, (link(at) - model.mean).T
        pull = messages.vector - jnp.einsum("kde,ke->kd", messages.precision, D)
        safe = first[:, :, None] * messages.precision * first[:, None, :]
        bend = -(pull * second)[:, :, None] * jnp.eye(model.dim, dtype=safe.dtype)

        def about_zero(precision: Array) -> JointSums:
            vector = first * pull + jnp.einsum("kde,ke->kd", precision, rows)
            return add_up(model, Messages(precision, vector))

        return about_zero(safe), about_zero(safe + bend)
