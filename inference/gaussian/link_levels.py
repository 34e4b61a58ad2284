"""Levels above actions that depend on them through a link.

Aouali et al. 2023, Appendix E.3. Given the levels above, actions and Gaussian
rewards stay exact, so actions are integrated out exactly: action `i` says of its displacement
`D_i = g(mu_i + Gamma_i z) - mu_i` the same Gaussian message `exp(-D' M_i D / 2 + k_i' D)` as without a
link. What is left, a density of `z` alone, is approximated by
a Gaussian at its mode (Laplace).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Bool, Float, Int

from .action_blocks import ActionState, Messages, messages_of
from .joint_levels import JointSums, add_up, given_sums
from .linear_model import ActionModel, GaussianVector

__all__ = ["LinkEffects", "before_data", "fit_effects"]

_MOST_STEPS = 40


class LinkEffects(NamedTuple):
    """The Laplace approximation `N(mean, root root')` of `z`.

    Attributes:
        mean: the mode.
        root: a square root of the inverse curvature there.
        unconverged: how many fits stopped before the mode was found.
        indefinite: how many found a curvature that is not positive definite, and took the part of it
            that always is (Gauss and Newton's) instead.
    """

    mean: Float[Array, " N"]
    root: Float[Array, "N N"]
    unconverged: Int[Array, ""]
    indefinite: Int[Array, ""]


def before_data(prior: GaussianVector) -> LinkEffects:
    """The prior of `z`."""
    zero = jnp.zeros((), jnp.int32)
    return LinkEffects(prior.mean, prior.root, zero, zero)


def fit_effects(
    model: ActionModel, prior: GaussianVector, effects: LinkEffects, actions: ActionState
) -> LinkEffects:
    """The mode of `z` and the curvature there, by Newton's method from where `effects` stands.

    A step costs O(K d N^2 + N^3). Steps use Gauss and Newton's curvature, which is never indefinite,
    and go only as far as the density rises.
    """
    messages = messages_of(model, actions)
    tolerance = 100 * jnp.finfo(prior.mean.dtype).eps
    fractions = 0.5 ** jnp.arange(8.0)

    def energy(z: Float[Array, " N"]) -> Float[Array, ""]:
        whitened = solve_triangular(prior.root, z - prior.mean, lower=True)
        D = model.displacements(model.arrows.split(z)).T
        said = jnp.einsum("kd,kde,ke->", D, messages.precision, D) / 2
        return 0.5 * whitened @ whitened + said - jnp.sum(messages.vector * D)

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        z, _, count = carry
        sums, _ = _expand(model, messages, z)
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
    safe, exact = _expand(model, messages, mode)
    root = given_sums(prior, exact).root
    definite = jnp.isfinite(root).all()
    root = jnp.where(definite, root, given_sums(prior, safe).root)
    return LinkEffects(mode, root, effects.unconverged + ~settled, effects.indefinite + ~definite)


def _expand(
    model: ActionModel, messages: Messages, z: Float[Array, " N"]
) -> tuple[JointSums, JointSums]:
    """The messages to second order around `z`: with Gauss and Newton's curvature, and with the exact."""
    link = model.link
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
