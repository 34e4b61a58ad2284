"""Kernels: their matrices by other formulas and by loops, their factors, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

from mistakes import actions, check_refused, effects
from mixts.models import AR1, GaussianProcess, Graph, Kernel, Relationship
from tolerance import tolerance

RNG = np.random.default_rng(0)
SIZE = 5
WEIGHTS = np.triu(RNG.uniform(0.5, 2.0, (SIZE, SIZE)) * (RNG.random((SIZE, SIZE)) < 0.6), 1)
WEIGHTS[0, 1:] = 1.0
WEIGHTS = WEIGHTS + WEIGHTS.T
PLACES = RNG.normal(size=(SIZE, 2))
ROOT = RNG.normal(size=(SIZE, SIZE))
PEDIGREE = ROOT @ ROOT.T + np.eye(SIZE)


def matern(smoothness: float, lengthscale) -> np.ndarray:
    """The general formula, with a Bessel function, one pair at a time."""
    found = np.empty((SIZE, SIZE))
    for k in range(SIZE):
        for m in range(SIZE):
            r = np.linalg.norm((PLACES[k] - PLACES[m]) / lengthscale)
            if np.isinf(smoothness):
                found[k, m] = np.exp(-(r**2) / 2)
                continue
            a = np.sqrt(2 * smoothness) * r
            bessel = scipy.special.kv(smoothness, a) if r else 0.0
            factor = 2 ** (1 - smoothness) / scipy.special.gamma(smoothness)
            found[k, m] = factor * a**smoothness * bessel if r else 1.0
    return found + 1e-4 * np.eye(SIZE)


CASES = {
    "AR1": (lambda: AR1(0.7), scipy.linalg.toeplitz(0.7 ** np.arange(SIZE))),
    "AR1 negative": (lambda: AR1(-0.4), scipy.linalg.toeplitz((-0.4) ** np.arange(SIZE))),
    "AR1 of nothing": (lambda: AR1(0.0), np.eye(SIZE)),
    "graph": (
        lambda: Graph(WEIGHTS, 0.8),
        np.linalg.inv(np.diag(WEIGHTS.sum(1)) - 0.8 * WEIGHTS),
    ),
    "relationship": (lambda: Relationship(PEDIGREE), PEDIGREE),
    **{
        f"Matern {smoothness}": (
            lambda smoothness=smoothness: GaussianProcess(PLACES, [0.5, 2.0], smoothness),
            matern(smoothness, np.array([0.5, 2.0])),
        )
        for smoothness in (0.5, 1.5, 2.5, float("inf"))
    },
}


@pytest.mark.parametrize(("make", "expected"), CASES.values(), ids=CASES)
def test_the_matrix_and_its_factor(make, expected, x64):
    kernel = make()
    np.testing.assert_allclose(kernel.between(SIZE), expected, **tolerance())
    np.testing.assert_allclose(kernel.root(SIZE), np.linalg.cholesky(expected), **tolerance())


def test_an_autoregression_is_a_recursion(x64):
    """`z_k = rho z_{k-1} + sqrt(1 - rho^2) eps_k`, from its stationary law."""
    rho, noise = 0.6, RNG.normal(size=SIZE)
    path = [noise[0]]
    for shock in noise[1:]:
        path.append(rho * path[-1] + np.sqrt(1 - rho**2) * shock)
    np.testing.assert_allclose(AR1(rho).root(SIZE) @ noise, path, rtol=1e-12)


def test_a_graph_is_the_autoregression_of_numpyro(x64):
    """Of 0 and 1, which is what NumPyro's takes."""
    adjacency = (WEIGHTS > 0).astype(float)
    values = RNG.normal(size=SIZE)
    theirs = dist.CAR(0.0, 0.8, 1 / 0.7, adjacency).log_prob(values)
    cov = 0.7 * np.asarray(Graph(adjacency, 0.8).between(SIZE))
    ours = scipy.stats.multivariate_normal.logpdf(values, np.zeros(SIZE), cov)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5])
def test_gradients_are_finite_and_right(rho, x64):
    def entry(rho):
        return AR1(rho).root(4)[3].sum() + AR1(rho).between(4)[3].sum()

    step = 1e-6
    expected = (entry(rho + step) - entry(rho - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(entry)(rho), expected, rtol=1e-6, atol=1e-8)
    for smoothness in (0.5, 1.5, 2.5, float("inf")):
        slope = jax.grad(lambda r, s=smoothness: GaussianProcess(PLACES, r, s).between(5).sum())(
            0.7
        )
        assert np.isfinite(slope)
        assert slope > 0


def test_many_kernels_at_once(x64):
    correlations = jnp.array([0.1, 0.5, 0.9])
    law = AR1(dist.Uniform(-1.0, 1.0))
    many = jax.jit(jax.vmap(lambda rho: law.given({"correlation": rho}).between(3)))(correlations)
    for rho, matrix in zip(correlations, many, strict=True):
        np.testing.assert_allclose(matrix, AR1(float(rho)).between(3), rtol=1e-12)


def test_what_is_unknown():
    process = GaussianProcess(PLACES, dist.LogNormal(np.zeros(2)), nugget=dist.HalfNormal(0.1))
    assert list(process.unknowns) == ["lengthscale", "nugget"]
    known = process.given({"lengthscale": np.array([1.0, 2.0]), "nugget": 0.01})
    assert not known.unknowns
    np.testing.assert_array_equal(known.lengthscale, [1.0, 2.0])
    assert AR1(0.5).given({}).correlation == 0.5


def test_texts():
    assert repr(AR1(0.5)) == "AR1(correlation=0.5)"
    assert repr(AR1(dist.Uniform(0, 1))) == "AR1(correlation ~ Uniform)"
    assert repr(Graph(WEIGHTS, 0.5)) == "Graph(5 vertices, strength=0.5)"
    assert repr(Relationship(PEDIGREE)) == "Relationship(5 x 5)"


def asymmetric(weight: float) -> np.ndarray:
    return np.array([[0.0, 1.0], [weight, 0.0]])


class Scaled(Kernel):
    """One whose number has the name of another site."""

    scale: object

    def between(self, size):
        return self.scale * jnp.eye(size)


class Negative(Kernel):
    """One that is no covariance."""

    def between(self, size):
        return -jnp.eye(size)


class Small(Kernel):
    """One that is always of two vectors."""

    share: object = 0.5

    def between(self, size):
        return jnp.eye(2)


MISTAKES = {
    "a site twice": (
        lambda: effects(kernel=Scaled(dist.HalfNormal()), scale=dist.HalfNormal()),
        ["level 'effect': the kernel Scaled(scale ~ HalfNormal) learns 'scale'", "another name"],
    ),
    "not positive definite": (
        lambda: effects(kernel=Negative()),
        [
            "level 'effect': kernel Negative() gives a matrix that is not positive definite in float32"
        ],
    ),
    "all alike": (
        lambda: effects(kernel=GaussianProcess([0.0, 1e-6, 2e-6], 1.0, nugget=1e-12)),
        ["not positive definite in float32", "a larger nugget"],
    ),
    "of another shape": (
        lambda: effects(kernel=Small()),
        ["level 'effect': kernel gives a matrix of shape (2, 2); expected (3, 3)"],
    ),
    "learned, of another shape": (
        lambda: effects(kernel=Small(dist.Uniform())),
        ["level 'effect': kernel gives a matrix of shape (2, 2); expected (3, 3)"],
    ),
    "correlation of one": (lambda: AR1(1.0), ["AR1 correlation is 1.0", "more than -1 and less"]),
    "correlation NaN": (lambda: AR1(np.nan), ["AR1 correlation: holds nan"]),
    "several correlations": (lambda: AR1([0.1, 0.2]), ["AR1 correlation has shape (2,)"]),
    "a law of correlations above one": (
        lambda: AR1(dist.Uniform(0.0, 2.0)),
        ["AR1 correlation ~ Uniform can be outside (-1, 1)"],
    ),
    "a law of any correlation": (
        lambda: AR1(dist.Normal()),
        ["AR1 correlation ~ Normal can be outside (-1, 1)"],
    ),
    "a law of several": (
        lambda: AR1(dist.Uniform(np.zeros(2), 1.0)),
        ["AR1 correlation: the distribution has shape (2,); expected ()"],
    ),
    "asymmetric adjacency": (
        lambda: Graph(asymmetric(2.0), 0.5),
        ["Graph adjacency is not symmetric: 1 at (0, 1) and 2 at (1, 0)"],
    ),
    "negative adjacency": (lambda: Graph(-asymmetric(1.0), 0.5), ["holds negative numbers"]),
    "a loop": (lambda: Graph(np.ones((2, 2)), 0.5), ["on its diagonal"]),
    "adjacency not square": (lambda: Graph(np.ones((2, 3)), 0.5), ["shape (2, 3)", "a square"]),
    "nobody's neighbour": (
        lambda: Graph(np.pad(asymmetric(1.0), (0, 1)), 0.5),
        ["vertex 2 has no neighbours"],
    ),
    "strength of one": (lambda: Graph(asymmetric(1.0), 1.0), ["Graph strength is 1.0"]),
    "no coordinates": (lambda: GaussianProcess(1.0, 1.0), ["coordinates have shape ()"]),
    "lengthscale of zero": (
        lambda: GaussianProcess([1.0, 2.0], 0.0),
        ["lengthscale is 0.0; expected more than 0"],
    ),
    "a lengthscale too many": (
        lambda: GaussianProcess(PLACES, np.ones(3)),
        ["lengthscale has shape (3,); expected () or (2,)"],
    ),
    "lengthscale that may be negative": (
        lambda: GaussianProcess(PLACES, dist.Normal()),
        ["lengthscale ~ Normal can be outside (0, inf)"],
    ),
    "smoothness": (lambda: GaussianProcess(PLACES, 1.0, 2.0), ["smoothness is 2.0", "0.5, 1.5"]),
    "singular relationship": (
        lambda: Relationship(np.ones((2, 2))),
        ["Relationship matrix is not positive definite"],
    ),
    "asymmetric relationship": (
        lambda: Relationship([[1.0, 0.5], [0.0, 1.0]]),
        ["Relationship matrix is not symmetric"],
    ),
    "graph of another size": (
        lambda: effects(kernel=Graph(asymmetric(1.0), 0.5)),
        ["level 'effect': kernel: Graph adjacency has shape (2, 2); expected (3, 3)"],
    ),
    "places of others": (
        lambda: effects(kernel=GaussianProcess(PLACES, 1.0)),
        ["level 'effect': kernel: GaussianProcess coordinates has shape (5, 2); expected 3 rows"],
    ),
    "relationship of others": (
        lambda: effects(kernel=Relationship(PEDIGREE)),
        ["Relationship matrix has shape (5, 5); expected (3, 3)"],
    ),
    "a level with parents": (
        lambda: actions(kernel=AR1(0.5)),
        ["level 'action': has parents and a kernel", "a level above"],
    ),
    "beside a joint covariance": (
        lambda: effects(kernel=AR1(0.5), cov=np.eye(6)),
        ["level 'effect': cov has shape (6, 6); beside a kernel expected (), (2,) or (2, 2)"],
    ),
    "beside a scale of each": (
        lambda: effects(kernel=AR1(0.5), scale=dist.HalfNormal(np.ones((3, 1)))),
        ["level 'effect': scale: the distribution has shape (3, 1); expected () or (2,)"],
    ),
}


@pytest.mark.parametrize(("declare", "parts"), MISTAKES.values(), ids=MISTAKES)
def test_refused(declare, parts):
    check_refused(declare, ValueError, parts)


def test_no_kernel():
    check_refused(lambda: effects(kernel="AR1"), TypeError, ["kernel is 'AR1'", "such as AR1(0.9)"])
    assert issubclass(AR1, Kernel)
