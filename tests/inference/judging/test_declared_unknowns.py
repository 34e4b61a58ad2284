"""`empirical_bayes` of what is declared as unknown: one declaration for it and for samplers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from mistakes import as_a_user
from mixed_models import known_fits
from mixts.inference import Trouble, empirical_bayes
from mixts.models import (
    AR1,
    Data,
    Gaussian,
    GaussianProcess,
    Graph,
    Hierarchy,
    Level,
    LKJCovariance,
    Sparse,
)
from sampling import unoptimised


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


# Maximum likelihood ------------------------------------------------------------------------------


def flat() -> dist.Distribution:
    """As good as flat on standard deviations of any size."""
    return dist.HalfCauchy(1e9)


def declared(name: str) -> Hierarchy:
    """A mixed model with everything unknown, under flat laws; the mean too."""
    known = known_fits()[name]
    dim = known.data.contexts.shape[1]
    top, *below = known.levels
    mean = dist.ImproperUniform(dist.constraints.real_vector, (), (dim,))
    spread = {"cov": LKJCovariance(2, 1.0, flat())} if dim > 1 else {"scale": flat()}
    levels = [Level(top.name, top.size, mean=mean, **spread)]
    levels += [level.remade(scale=flat(), cov=1.0) for level in below]
    return Hierarchy(levels, Gaussian(flat()), dim)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("sleepstudy", marks=pytest.mark.slow),
        "dyestuff",
        "dyestuff2",
        pytest.param("pastes", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("prior", [True, False])
def test_flat_laws_give_maximum_likelihood(name, prior):
    """The fits of lme4, whose log-likelihoods are known to 5e-4."""
    known = known_fits()[name]
    fit = empirical_bayes(declared(name), known.data, prior=prior)
    assert fit.log_evidence == pytest.approx(known.log_likelihood, abs=1e-3)
    assert fit.at_zero == (("batch_scale",) if name == "dyestuff2" else ())
    assert fit.status.ok or name == "dyestuff2"
    variances = [
        np.ravel(np.diag(lv.cov) if lv.cov.ndim else lv.cov) for lv in fit.hierarchy.levels
    ]
    found = [*np.concatenate(variances), float(fit.hierarchy.reward.noise) ** 2]
    expected = np.array(known.variances)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5 * expected[-1])
    assert not fit.hierarchy.unknowns.laws
    assert fit.hierarchy.why_not_exact is None
    assert (fit.log_prior == 0.0) != prior


def test_laws_that_do_not_count_change_nothing():
    known = known_fits()["dyestuff"]
    far = Level("batch", 6, mean=dist.Normal(0.0, 1.0), scale=dist.HalfNormal(1e-3))
    far = Hierarchy([far], Gaussian(dist.HalfNormal(1e-3)), 1)
    fit = empirical_bayes(far, known.data, prior=False)
    assert fit.log_evidence == pytest.approx(known.log_likelihood, abs=1e-3)
    assert empirical_bayes(far, known.data).log_evidence < fit.log_evidence - 10


# The posterior mode ------------------------------------------------------------------------------

SIZE, DIM, N = 6, 2, 120
RNG = np.random.default_rng(3)
CONTEXTS = np.column_stack([np.ones(N), RNG.normal(size=N)])
ACTIONS = RNG.integers(0, SIZE, N)
PATH = np.eye(SIZE, k=1) + np.eye(SIZE, k=-1)
PLACES = np.array([0.0, 0.5, 1.5, 2.0, 4.0, 5.0])
OF_ITEMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])


RNG_VECTORS, NOISE = RNG.normal(size=(SIZE, DIM)), RNG.normal(size=N)


def data() -> Data:
    walk = np.cumsum(RNG_VECTORS, axis=0)
    return Data(CONTEXTS, ACTIONS, np.sum(CONTEXTS * walk[ACTIONS], 1) + 0.5 * NOISE)


def levels(**changes) -> list[Level]:
    return [Level("item", SIZE, **changes)]


def weighted() -> list[Level]:
    law = dist.Normal(0.5 * np.ones((SIZE, 2)), 0.3)
    parents = {"zone": law}
    return [
        Level("zone", 2, cov=3.0),
        Level("item", SIZE, parents=parents, cov=0.5),
    ]


MODELS = {
    "AR1": lambda: levels(kernel=AR1(dist.Beta(2.0, 2.0)), scale=dist.HalfNormal(1.0)),
    "graph": lambda: levels(
        kernel=Graph(PATH, dist.Beta(2.0, 2.0)), cov=LKJCovariance(2, 3.0, dist.HalfNormal(2.0))
    ),
    "process": lambda: levels(
        kernel=GaussianProcess(PLACES, dist.LogNormal(0.0, 1.0)),
        scale=[dist.HalfCauchy(1.0), 1.5],
    ),
    "laws away from zero": lambda: levels(
        mean=dist.Normal(np.zeros(2), 1.0),
        scale=dist.Gamma(3.0, np.array([1.0, 2.0])),
    ),
    "matrix": lambda: levels(cov=dist.Wishart(4.0, np.eye(2))),
    "LKJ away from zero": lambda: levels(cov=LKJCovariance(2, 2.0, dist.LogNormal(0.0, 0.5))),
    "scales of each": lambda: levels(scale=dist.HalfNormal(np.ones((SIZE, 1)))),
    "weights": weighted,
}


def objective(hierarchy: Hierarchy, values) -> float:
    """The log density of rewards and values, by the covariance of all rewards and SciPy."""
    known = hierarchy.unknowns.given(values)
    mean, cov = np.zeros((SIZE, DIM)), np.zeros((SIZE * DIM, SIZE * DIM))
    for level in known.levels:
        root = np.asarray(level.covariance(DIM).joint_root(level.size)).reshape(
            level.size * DIM, -1
        )
        for arrows in level.arrows.values():
            maps = np.kron(np.asarray(arrows.values), np.eye(DIM))
            cov = maps @ cov @ maps.T
        cov = root @ root.T + (cov if level.parents else 0)
        mean = np.broadcast_to(level.mean, (level.size, DIM))
    rows = np.zeros((N, SIZE * DIM))
    for i, (context, action) in enumerate(zip(CONTEXTS, ACTIONS, strict=True)):
        rows[i, DIM * action : DIM * (action + 1)] = context
    spread = rows @ cov @ rows.T + float(known.reward.noise) ** 2 * np.eye(N)
    total = scipy.stats.multivariate_normal.logpdf(data().rewards, rows @ mean.ravel(), spread)
    for site, law in hierarchy.unknowns.laws.items():
        of_parts = getattr(law, "log_density_of_parts", law.log_prob)
        total += float(of_parts(jnp.asarray(values[site], float)))
    return total


def values_of(hierarchy: Hierarchy, fitted: Hierarchy) -> dict[str, np.ndarray]:
    """What was fitted, by site."""
    item, found = hierarchy["item"], fitted["item"]
    values = {"reward_noise": fitted.reward.noise}
    deviations = np.sqrt(np.abs(found.cov))
    for site in hierarchy.unknowns.laws:
        if site == "item_scale":
            shape = item.scale.shape()
            values[site] = deviations[:, 0, 0][:, None] if len(shape) == 2 else deviations
        elif site == "item_scale_0":
            values[site] = deviations[0]
        elif site in ("item_cov", "item_mean"):
            values[site] = getattr(found, site.removeprefix("item_"))
        elif site == "item_weights_zone":
            values[site] = found.parents["zone"]
        elif site != "reward_noise":
            values[site] = getattr(found.kernel, site.removeprefix("item_"))
    return {site: np.asarray(value) for site, value in values.items()}


QUICK = ("AR1", "graph", "weights")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(m, id=k, marks=[] if k in QUICK else pytest.mark.slow)
        for k, m in MODELS.items()
    ],
)
def test_it_ends_at_the_posterior_mode(make, x64):
    """No small step from there makes the posterior higher, nor is it higher than it says."""
    hierarchy = Hierarchy(make(), Gaussian(dist.Gamma(2.0, 2.0)), DIM)
    fit = empirical_bayes(hierarchy, data())
    assert fit.status.ok, fit.status
    values = values_of(hierarchy, fit.hierarchy)
    best = objective(hierarchy, values)
    np.testing.assert_allclose(fit.log_evidence + fit.log_prior, best, rtol=1e-7)
    rng = np.random.default_rng(0)
    for site, value in values.items():
        for _ in range(4):
            step = 0.02 * rng.choice([-1.0, 1.0], value.shape)
            away = value * (1 + step)
            away = (away + away.T) / 2 if site == "item_cov" else away
            assert objective(hierarchy, values | {site: away}) < best, site


def test_a_known_coordinate_stays(x64):
    hierarchy = Hierarchy(MODELS["process"](), Gaussian(0.5), DIM)
    fit = empirical_bayes(hierarchy, data())
    np.testing.assert_allclose(fit.hierarchy["item"].cov[1], 1.5**2, rtol=1e-12)
    assert float(fit.hierarchy.reward.noise) == 0.5


def test_more_can_be_learned_than_is_unknown(x64):
    """What is named is learned beside what is declared as unknown; no part twice."""
    hierarchy = Hierarchy(MODELS["AR1"](), Gaussian(2.0), DIM)
    fit = empirical_bayes(hierarchy, data(), learn=("cov", "noise", "mean"), max_steps=200)
    assert fit.hierarchy["item"].mean.shape == ()
    assert float(fit.hierarchy["item"].mean) != 0.0
    assert abs(float(fit.hierarchy.reward.noise) - 0.5) < 0.15
    assert not fit.hierarchy.unknowns.laws


def test_a_known_kernel_has_a_variance_to_learn(x64):
    """Declared as known, and learned by name: the variance keeps its form, the kernel stays."""
    hierarchy = Hierarchy(levels(kernel=AR1(0.6), cov=[1.0, 1.0]), Gaussian(0.5), DIM)
    fit = empirical_bayes(hierarchy, data(), learn=("cov",))
    assert fit.hierarchy["item"].cov.shape == (2,)
    assert float(fit.hierarchy["item"].kernel.correlation) == pytest.approx(0.6)
    for factor in (0.95, 1.05):
        cov = np.asarray(fit.hierarchy["item"].cov) * [factor, 1.0]
        other = fit.hierarchy.remade(levels=levels(kernel=AR1(0.6), cov=cov))
        assert objective(other, {}) < fit.log_evidence


def test_limits_and_what_is_undetermined(x64):
    """A correlation that the data push to one, and one of a level of which nothing is seen."""
    same = np.repeat(RNG.normal(size=(1, DIM)), SIZE, axis=0)
    rewards = np.sum(CONTEXTS * same[ACTIONS], 1)  # without noise, so even more alike than expected
    close = Hierarchy(levels(kernel=AR1(dist.Uniform(0.0, 1.0))), Gaussian(0.1), DIM)
    fit = empirical_bayes(close, Data(CONTEXTS, ACTIONS, rewards))
    assert fit.at_zero == ("item_correlation",)
    assert Trouble.AT_ZERO in fit.status
    assert 0.999 < float(fit.hierarchy["item"].kernel.correlation) < 1.0

    loose = [
        Level("zone", 2, kernel=AR1(dist.Uniform(0.0, 1.0))),
        Level("item", SIZE, parents={"zone": np.eye(SIZE, 2)}, scale=dist.HalfNormal(1.0)),
    ]
    only_first = Data(CONTEXTS, np.where(ACTIONS == 1, 2, ACTIONS), rewards)
    fit = empirical_bayes(Hierarchy(loose, Gaussian(0.1), DIM), only_first)
    assert "zone_correlation" in fit.undetermined


def test_eight_schools_have_their_mode_at_zero(x64):
    """Of the scale, whose posterior is highest at zero; the mean is then that of all, pulled to zero."""
    estimates = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    school = Level("school", 8, mean=dist.Normal(0.0, 5.0), scale=dist.HalfCauchy(5.0))
    seen = Data(np.ones((8, 1)), np.arange(8), estimates, exposure=errors**-2.0)
    fit = empirical_bayes(Hierarchy([school], Gaussian(1.0), dim=1), seen)
    assert fit.at_zero == ("school_scale",)
    expected = np.sum(estimates / errors**2) / (np.sum(errors**-2.0) + 1 / 25)
    assert float(fit.hierarchy["school"].mean) == pytest.approx(expected, rel=1e-4)


# What it refuses ---------------------------------------------------------------------------------


def test_what_has_no_evidence_is_refused():
    link = {"zone": Sparse(np.zeros((SIZE, 1), int))}
    item = Level("item", SIZE, parents=link, link=jnp.tanh, scale=dist.HalfNormal())
    model = Hierarchy([Level("zone", 1), item], Gaussian(1.0), DIM)
    with pytest.raises(ValueError, match="level 'item' has a link"):
        empirical_bayes(model, data())

    def heavy(loc, tril):
        return dist.MultivariateStudentT(4.0, loc, tril)

    tails = Hierarchy(levels(family=heavy, scale=dist.HalfNormal()), Gaussian(1.0), DIM)
    with pytest.raises(ValueError, match="level 'item' has a family of its own"):
        empirical_bayes(tails, data())
    with as_a_user(), pytest.raises(TypeError, match="prior is 'flat'; expected True or False"):
        empirical_bayes(Hierarchy(levels(), Gaussian(1.0), DIM), data(), prior="flat")


def test_in_jit_the_laws_are_those_declared():
    """In float32, as most use it, with the laws' numbers in it."""
    hierarchy = Hierarchy(MODELS["AR1"](), Gaussian(dist.Gamma(2.0, 2.0)), DIM)
    fit = empirical_bayes(hierarchy, data())
    assert fit.status.ok
    assert jax.tree.leaves(fit.hierarchy)[0].dtype == np.float32
