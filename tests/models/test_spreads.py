"""Learned means, covariances, kernels and partly known scales: their programs, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.linalg
import scipy.stats
from numpyro import handlers
from numpyro.infer.util import log_density

from mixts.inference import ClosedForm, log_evidence
from mixts.models import (
    AR1,
    Data,
    Gaussian,
    GaussianProcess,
    Graph,
    Hierarchy,
    Level,
    LKJCovariance,
    Relationship,
)
from mixts.models.exactness import Obstacle

DIM, SIZE = 2, 3
PATH = np.eye(3, k=1) + np.eye(3, k=-1)
FULL = np.array([[1.0, 0.4], [0.4, 0.8]])
DATA = np.array([[1.0, 0.5], [0.3, -1.0]]), np.array([0, 1]), np.array([0.3, -1.0])
COV = np.array([[0.7, -0.2], [-0.2, 0.4]])


def hierarchy(**top) -> Hierarchy:
    """Zones as declared, and items below them."""
    weights = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]])
    item = Level("item", 2, parents={"zone": weights}, cov=0.3)
    return Hierarchy([Level("zone", SIZE, **top), item], Gaussian(0.5), DIM)


def ar1(rho: float) -> np.ndarray:
    return scipy.linalg.toeplitz(rho ** np.arange(SIZE))


half = scipy.stats.halfnorm.logpdf
normal = scipy.stats.norm.logpdf

# What is declared; values of the unknowns; their log density; the covariance and the mean they stand for.
CASES = {
    "scale of one coordinate": (
        lambda: {"scale": [0.5, dist.HalfNormal(2.0)]},
        {"zone_scale_1": 1.3},
        half(1.3, scale=2.0),
        np.kron(np.eye(SIZE), np.diag([0.25, 1.69])),
    ),
    "AR1": (
        lambda: {"kernel": AR1(dist.Uniform(-1.0, 1.0)), "scale": dist.HalfNormal(2.0)},
        {"zone_scale": 1.3, "zone_correlation": -0.4},
        half(1.3, scale=2.0) - np.log(2),
        1.69 * np.kron(ar1(-0.4), np.eye(DIM)),
    ),
    "AR1 of coordinates that are correlated": (
        lambda: {"kernel": AR1(dist.Beta(2.0, 1.0)), "cov": FULL},
        {"zone_correlation": 0.3},
        scipy.stats.beta.logpdf(0.3, 2, 1),
        np.kron(ar1(0.3), FULL),
    ),
    "graph": (
        lambda: {
            "kernel": Graph(PATH, dist.Uniform(0.0, 1.0)),
            "scale": [dist.HalfNormal(1.0), 0.5],
        },
        {"zone_scale_0": 0.8, "zone_strength": 0.9},
        half(0.8),
        np.kron(np.linalg.inv(np.diag(PATH.sum(1)) - 0.9 * PATH), np.diag([0.64, 0.25])),
    ),
    "process": (
        lambda: {
            "kernel": GaussianProcess([0.0, 1.0, 3.0], dist.LogNormal(), 0.5),
            "cov": [1.0, 2.0],
        },
        {"zone_lengthscale": 2.0},
        scipy.stats.lognorm.logpdf(2.0, 1.0),
        np.kron(
            np.exp(-np.abs(np.subtract.outer([0.0, 1.0, 3.0], [0.0, 1.0, 3.0])) / 2)
            + 1e-4 * np.eye(3),
            np.diag([1.0, 2.0]),
        ),
    ),
    "relationship": (
        lambda: {
            "kernel": Relationship(PATH / 4 + np.eye(3)),
            "scale": dist.HalfNormal(np.ones(DIM)),
        },
        {"zone_scale": np.array([0.5, 2.0])},
        half(0.5) + half(2.0),
        np.kron(PATH / 4 + np.eye(3), np.diag([0.25, 4.0])),
    ),
    "covariance": (
        lambda: {"cov": dist.Wishart(4.0, np.eye(2))},
        {"zone_cov": COV},
        scipy.stats.wishart.logpdf(COV, 4, np.eye(2)),
        np.kron(np.eye(SIZE), COV),
    ),
    "covariance and kernel": (
        lambda: {"cov": dist.Wishart(4.0, np.eye(2)), "kernel": AR1(dist.Uniform(0.0, 1.0))},
        {"zone_cov": COV, "zone_correlation": 0.6},
        scipy.stats.wishart.logpdf(COV, 4, np.eye(2)),
        np.kron(ar1(0.6), COV),
    ),
    "mean": (
        lambda: {"mean": dist.Normal(1.0, 2.0), "cov": FULL},
        {"zone_mean": 0.4},
        normal(0.4, 1.0, 2.0),
        np.kron(np.eye(SIZE), FULL),
    ),
    "mean of each": (
        lambda: {"mean": dist.Normal(np.zeros((SIZE, DIM)), 2.0), "scale": dist.HalfNormal()},
        {"zone_mean": np.arange(6.0).reshape(SIZE, DIM), "zone_scale": 0.9},
        normal(np.arange(6.0), 0.0, 2.0).sum() + half(0.9),
        0.81 * np.eye(6),
    ),
}
PARTS = pytest.mark.parametrize(("declared", "values", "prior", "cov"), CASES.values(), ids=CASES)


@PARTS
@pytest.mark.parametrize("centered", [True, False])
def test_density(declared, values, prior, cov, centered, x64):
    """All of the program, against SciPy's densities of a joint normal vector."""
    model = hierarchy(**declared(), centered=centered)
    rng = np.random.default_rng(0)
    vectors, items = rng.normal(size=(SIZE, DIM)), rng.normal(size=(2, DIM))
    mean = np.broadcast_to(values.get("zone_mean", 0.0), (SIZE, DIM)).ravel()
    expected = prior
    if centered:
        sites = {"zone": vectors}
        expected += scipy.stats.multivariate_normal.logpdf(vectors.ravel(), mean, cov)
    else:
        root = np.linalg.cholesky(cov)
        base = rng.normal(size=SIZE * DIM)
        vectors = (mean + root @ base).reshape(SIZE, DIM)
        is_flat = model["zone"].is_joint(DIM)
        sites = {"zone_base": base if is_flat else base.reshape(SIZE, DIM)}
        expected += normal(base).sum()
    weights = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]])
    expected += normal(items, weights @ vectors, np.sqrt(0.3)).sum()
    contexts, actions, rewards = DATA
    expected += normal(rewards, np.sum(contexts * items[actions], 1), 0.5).sum()
    everything = jax.tree.map(jnp.asarray, sites | {"item": items} | values)
    found, _ = log_density(model.program, DATA, {}, everything)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@PARTS
def test_laws_and_known_hierarchy(declared, values, prior, cov, x64):
    """Sites in the order of the program; given values, the stated covariance, in `jit` and `vmap` too."""
    model = hierarchy(**declared())
    laws = model.unknowns.laws
    assert list(laws) == [n for n in model["zone"].site_names() if n in values]
    assert not any(law.batch_shape for law in laws.values())
    total = sum(law.log_prob(jnp.asarray(values[site])) for site, law in laws.items())
    np.testing.assert_allclose(total, prior, rtol=1e-10)
    trace = handlers.trace(handlers.seed(model.program, 0)).get_trace(*DATA)
    assert [name for name in trace if name in laws] == list(laws)

    def joint(values):
        zone = model.unknowns.given(values)["zone"]
        root = zone.covariance(DIM).joint_root(SIZE).reshape(SIZE * DIM, -1)
        return root @ root.T, jnp.broadcast_to(zone.mean, (SIZE, DIM))

    many = {site: np.stack([value] * 2) for site, value in values.items()}
    found, means = jax.jit(jax.vmap(joint))(many)
    for each, mean in zip(found, means, strict=True):
        np.testing.assert_allclose(each, cov, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(mean, np.broadcast_to(values.get("zone_mean", 0.0), (SIZE, DIM)))
    known = model.unknowns.given(values)
    assert known.why_not_exact is None
    assert model.why_not_exact is not None
    assert known["zone"].arguments()["kernel"] is None or not known["zone"].kernel.unknowns


@PARTS
def test_closed_form_given_values(declared, values, prior, cov, x64):
    """The exact posterior of a known hierarchy with a kernel, against dense conditioning."""
    known = hierarchy(**declared()).unknowns.given(values)
    contexts, actions, rewards = DATA
    backend = ClosedForm(known)
    posterior = backend.posterior(backend.condition(backend.init(), contexts, actions, rewards))
    weights = np.kron(np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]), np.eye(DIM))
    both = np.block([[cov, cov @ weights.T], [weights @ cov, weights @ cov @ weights.T]])
    both[6:, 6:] += 0.3 * np.eye(4)
    mean = np.broadcast_to(values.get("zone_mean", 0.0), (SIZE, DIM)).ravel()
    mean = np.concatenate([mean, weights @ mean])
    seen = np.zeros((2, 10))
    for row, (context, action) in enumerate(zip(contexts, actions, strict=True)):
        seen[row, 6 + DIM * action : 8 + DIM * action] = context
    gain = both @ seen.T @ np.linalg.inv(seen @ both @ seen.T + 0.25 * np.eye(2))
    spread = seen @ both @ seen.T + 0.25 * np.eye(2)
    evidence = scipy.stats.multivariate_normal.logpdf(rewards, seen @ mean, spread)
    np.testing.assert_allclose(log_evidence(known, Data(*DATA)), evidence, rtol=1e-10)
    expected = mean + gain @ (rewards - seen @ mean)
    left = both - gain @ seen @ both
    np.testing.assert_allclose(posterior.mean["zone"].ravel(), expected[:6], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(posterior.mean["item"].ravel(), expected[6:], rtol=1e-9, atol=1e-9)
    for k in range(SIZE):
        block = slice(DIM * k, DIM * (k + 1))
        np.testing.assert_allclose(posterior.cov["zone"][k], left[block, block], atol=1e-9)


def test_a_kernel_on_the_actions(x64):
    """Alone, without a level above: the covariance of all."""
    level = Level("item", SIZE, kernel=AR1(0.8), cov=FULL)
    backend = ClosedForm(Hierarchy([level], Gaussian(0.5), DIM))
    posterior = backend.posterior(backend.init())
    np.testing.assert_allclose(posterior.cov["item"], [FULL] * SIZE, atol=1e-9)
    drawn = posterior.draw(jax.random.key(0), 4000)["item"].reshape(4000, -1)
    # 21 entries, each within 5 standard errors, at most sqrt(2) / sqrt(4000) of a variance of 1.
    np.testing.assert_allclose(np.cov(drawn.T), np.kron(ar1(0.8), FULL), atol=0.12)


@pytest.mark.parametrize("centered", [True, False])
def test_prior_draws(centered, x64):
    """Vectors given a kernel's number: 21 covariances, each within 4.5 standard errors."""
    model = hierarchy(kernel=AR1(dist.Uniform(0.0, 1.0)), cov=FULL, centered=centered)
    known = handlers.substitute(model.sample_prior, {"zone_correlation": jnp.asarray(0.7)})
    n = 4000
    drawn = jax.jit(jax.vmap(known))(jax.random.split(jax.random.key(0), n))["zone"].reshape(n, -1)
    cov = np.kron(ar1(0.7), FULL)
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    assert (np.abs(np.cov(drawn.T) - cov) < 4.5 * error).all()


OBSTACLES = {
    Obstacle.MEAN: {"mean": dist.StudentT(4.0)},
    Obstacle.COV: {"cov": LKJCovariance(2)},
    Obstacle.KERNEL: {"kernel": AR1(dist.Uniform(0.0, 1.0))},
    Obstacle.SCALE: {"scale": [1.0, dist.HalfNormal()]},
}


@pytest.mark.parametrize(("obstacle", "declared"), OBSTACLES.items())
def test_obstacles(obstacle, declared):
    model = hierarchy(**declared)
    why = model.why_not_exact
    assert why is not None
    assert why.obstacle is obstacle
    assert why == f"level 'zone' {obstacle.value}: no closed form; use Collapsed, Nuts or Svi"


def test_a_gaussian_mean_has_a_closed_form_as_a_level():
    cause = hierarchy(mean=dist.Normal(0.0, 1.0)).why_not_exact.cause
    assert cause == (
        "level 'zone' learns its mean, which as a level above, with weights of one, would be "
        "integrated out exactly"
    )


def test_texts():
    """In the text of a hierarchy and in its picture."""
    kernel = hierarchy(kernel=AR1(dist.Uniform(0.0, 1.0)), scale=[0.5, dist.HalfNormal()])
    assert "scale (0.5, ~ HalfNormal), AR1(correlation ~ Uniform), non-centred" in repr(kernel)
    both = hierarchy(mean=dist.Normal(), cov=LKJCovariance(2))
    assert "Normal(mean ~ Normal; cov ~ LKJCovariance, non-centred)" in repr(both)
    known = hierarchy(kernel=AR1(0.5), cov=2.0)
    assert "Normal(0; cov 2, AR1(correlation=0.5))" in repr(known)


NOTES = {
    "kernel": (
        {"kernel": AR1(dist.Uniform(0.0, 1.0)), "scale": dist.HalfNormal()},
        ["Normal", "scale ~ HalfNormal (learned)", "AR1(correlation ~ Uniform)"],
    ),
    "known kernel": ({"kernel": AR1(0.5)}, ["Normal, cov 1, AR1(correlation=0.5)"]),
    "covariance": (
        {"cov": LKJCovariance(2), "mean": dist.Normal()},
        ["Normal", "cov ~ LKJCovariance (learned)", "mean ~ Normal (learned)"],
    ),
}


@pytest.mark.parametrize(("declared", "lines"), NOTES.values(), ids=NOTES)
def test_pictures(declared, lines):
    from mixts.models.picture.lettering import describe_law

    model = hierarchy(**declared)
    assert describe_law(model["zone"], DIM) == lines
    assert model.render().axes


def test_two_sites_of_one_name():
    level = Level("zone", SIZE, kernel=AR1(dist.Uniform(0.0, 1.0)))
    other = Level("zone_correlation", 1, parents={"zone": np.ones((1, SIZE))})
    with pytest.raises(ValueError, match="both need the name 'zone_correlation'"):
        Hierarchy([level, other], Gaussian(), DIM)


def test_an_unknown_covariance_is_no_operator():
    level = Level("zone", SIZE, cov=LKJCovariance(DIM))
    with pytest.raises(ValueError, match="learns its covariance: it is not known"):
        level.covariance(DIM)
