"""The same Thompson sampling written in the usual ways, to measure against.

Each plays `horizon` rounds of one run of Section 5.1 and returns its regret: formula by
formula as published implementations do, vectorised over actions, and as a loop tuned by hand and
compiled by Numba, with the same rank-one updates as mixts.
"""

from typing import NamedTuple

import numba
import numpy as np

__all__ = ["World", "by_formula", "compiled_loop", "draw_world", "over_actions"]


class World(NamedTuple):
    """Weights (K, L), hidden actions (K, d), and the prior variances of effects and actions."""

    weights: np.ndarray
    theta: np.ndarray
    effect_variance: float = 3.0
    action_variance: float = 1.0
    noise: float = 1.0


def draw_world(K: int, L: int, d: int, rng: np.random.Generator) -> World:
    """An instance of the paper's synthetic problem."""
    weights = rng.uniform(-1, 1, (K, L))
    effects = np.sqrt(3.0) * rng.normal(size=(L, d))
    return World(weights, weights @ effects + rng.normal(size=(K, d)))


def by_formula(world: World, horizon: int, rng: np.random.Generator) -> float:
    """Propositions 1 and 2 as they stand: inverses, and a draw per action."""
    K, d = world.theta.shape
    L = world.weights.shape[1]
    prior = world.effect_variance * np.eye(L * d)
    own = world.action_variance * np.eye(d)
    G, B = np.zeros((K, d, d)), np.zeros((K, d))
    regret = 0.0
    for _ in range(horizon):
        x = rng.uniform(-1, 1, d)
        precision, vector = np.linalg.inv(prior), np.zeros(L * d)
        for i in range(K):
            b = world.weights[i]
            covariance = np.linalg.inv(np.linalg.inv(own) + G[i])
            M = np.linalg.inv(own) - np.linalg.inv(own) @ covariance @ np.linalg.inv(own)
            precision += np.kron(np.outer(b, b), M)
            vector += np.kron(b, np.linalg.inv(own) @ covariance @ B[i])
        effect_covariance = np.linalg.inv(precision)
        effects = rng.multivariate_normal(effect_covariance @ vector, effect_covariance)
        theta = np.zeros((K, d))
        for i in range(K):
            covariance = np.linalg.inv(np.linalg.inv(own) + G[i])
            center = world.weights[i] @ effects.reshape(L, d)
            mean = covariance @ (np.linalg.inv(own) @ center + B[i])
            theta[i] = rng.multivariate_normal(mean, covariance)
        a = int(np.argmax(theta @ x))
        means = world.theta @ x
        y = means[a] + world.noise * rng.normal()
        G[a] += np.outer(x, x) / world.noise**2
        B[a] += x * y / world.noise**2
        regret += means.max() - means[a]
    return regret


def over_actions(world: World, horizon: int, rng: np.random.Generator) -> float:
    """The same formulas with NumPy's batched inverses, one call for all actions."""
    K, d = world.theta.shape
    b = world.weights
    L = b.shape[1]
    own = np.eye(d) / world.action_variance
    G, B = np.zeros((K, d, d)), np.zeros((K, d))
    regret = 0.0
    for _ in range(horizon):
        x = rng.uniform(-1, 1, d)
        S = np.linalg.inv(own + G)
        M = own - own @ S @ own
        precision = np.einsum("kl,km,kde->ldme", b, b, M, optimize=True).reshape(L * d, L * d)
        precision += np.eye(L * d) / world.effect_variance
        vector = np.einsum("kl,kd->ld", b, np.einsum("kde,ke->kd", own @ S, B)).ravel()
        covariance = np.linalg.inv(precision)
        root = np.linalg.cholesky(covariance)
        effects = (covariance @ vector + root @ rng.normal(size=L * d)).reshape(L, d)
        mean = np.einsum("kde,ke->kd", S, b @ effects @ own + B)
        theta = mean + np.einsum("kde,ke->kd", np.linalg.cholesky(S), rng.normal(size=(K, d)))
        a = int(np.argmax(theta @ x))
        means = world.theta @ x
        y = means[a] + world.noise * rng.normal()
        G[a] += np.outer(x, x) / world.noise**2
        B[a] += x * y / world.noise**2
        regret += means.max() - means[a]
    return regret


def compiled_loop(world: World, horizon: int, rng: np.random.Generator) -> float:
    """Rank-one updates of square roots, one scalar normal per action, actions last in memory.

    No memory is allocated in a round, and every loop over actions is the innermost, so that the compiler
    computes several of them at a time.
    """
    return _compiled(
        np.ascontiguousarray(world.weights.T, np.float32),
        np.ascontiguousarray(world.theta.T, np.float32),
        np.float32(np.sqrt(world.effect_variance)),
        np.float32(np.sqrt(world.action_variance)),
        np.float32(world.noise**2),
        horizon,
        rng,
    )


@numba.njit(fastmath=True)
def _compiled(b, theta, effect_scale, action_scale, variance, horizon, rng):
    L, K = b.shape
    d = theta.shape[0]
    N, zero, one = L * d, np.float32(0.0), np.float32(1.0)
    mean, root = np.zeros(N, np.float32), np.zeros((N, N), np.float32)
    center, Q = np.zeros((d, K), np.float32), np.zeros((d, d, K), np.float32)
    for n in range(N):
        root[n, n] = effect_scale
    for j in range(d):
        Q[j, j] = action_scale
    inverse = one / action_scale**2
    z, noise, x = np.zeros(N, np.float32), np.zeros(N, np.float32), np.zeros(d, np.float32)
    g, h, moved = np.zeros(N, np.float32), np.zeros(N, np.float32), np.zeros(N, np.float32)
    w, u, xi = np.zeros(d, np.float32), np.zeros(d, np.float32), np.zeros((d, K), np.float32)
    across, along = np.zeros(K, np.float32), np.zeros(K, np.float32)
    score, spread, truth = (
        np.zeros(K, np.float32),
        np.zeros(K, np.float32),
        np.zeros(K, np.float32),
    )
    regret = 0.0
    for _ in range(horizon):
        for j in range(d):
            x[j] = rng.uniform(-1.0, 1.0)
        for n in range(N):
            noise[n] = rng.standard_normal()
        for n in range(N):
            z[n] = mean[n]
            for m in range(N):
                z[n] += root[n, m] * noise[m]
        score[:], spread[:], truth[:], xi[:] = zero, zero, zero, zero
        for j in range(d):
            for level in range(L):
                effect = z[level * d + j]
                for i in range(K):
                    xi[j, i] += b[level, i] * effect
        for e in range(d):
            across[:], along[:] = zero, zero
            for j in range(d):
                for i in range(K):
                    across[i] += Q[j, e, i] * x[j]
                    along[i] += Q[j, e, i] * xi[j, i]
            for i in range(K):
                score[i] += across[i] * along[i] * inverse + center[e, i] * x[e]
                spread[i] += across[i] * across[i]
                truth[i] += theta[e, i] * x[e]
        for i in range(K):
            across[i] = rng.standard_normal()
        for i in range(K):
            score[i] += np.sqrt(spread[i]) * across[i]
        a = np.argmax(score)
        regret += truth.max() - truth[a]
        reward = truth[a] + np.sqrt(variance) * np.float32(rng.standard_normal())
        total, residual = variance, reward
        for e in range(d):
            w[e] = zero
            for j in range(d):
                w[e] += Q[j, e, a] * x[j]
            total += w[e] * w[e]
            residual -= center[e, a] * x[e]
        for j in range(d):
            u[j] = zero
            for e in range(d):
                u[j] += Q[j, e, a] * w[e]
        shrink = one / (total + np.sqrt(variance * total))
        for j in range(d):
            center[j, a] += u[j] * residual / total
            for e in range(d):
                Q[j, e, a] -= u[j] * w[e] * shrink
        above = total
        for n in range(N):
            g[n] = b[n // d, a] * u[n % d] * inverse
            residual -= g[n] * mean[n]
        for m in range(N):
            h[m] = zero
            for n in range(N):
                h[m] += g[n] * root[n, m]
            above += h[m] * h[m]
        for n in range(N):
            moved[n] = zero
            for m in range(N):
                moved[n] += root[n, m] * h[m]
        shrink = one / (above + np.sqrt(total * above))
        for n in range(N):
            mean[n] += moved[n] * residual / above
            for m in range(N):
                root[n, m] -= moved[n] * h[m] * shrink
    return regret
