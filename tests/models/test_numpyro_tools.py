"""A hierarchy's program in the hands of NumPyro's own tools."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.inspect import get_model_relations
from numpyro.optim import Adam

from mixts.models import Bernoulli, Data, Gaussian, Hierarchy, Level, Sparse, mab


@pytest.fixture
def hierarchy():
    """Two arms that share one effect, with everything that can be learned learned."""
    return Hierarchy(
        [
            Level("effect", 2, scale=dist.HalfNormal(1.0), centered=False),
            Level(
                "action",
                3,
                parents={"effect": Sparse([[0], [1], [0]], dist.Normal(1.0, 0.5))},
                cov=0.5,
            ),
        ],
        Gaussian(dist.HalfNormal(1.0)),
        1,
    )


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, 20)
    return Data(np.ones((20, 1)), actions, actions + 0.5 * rng.normal(size=20))


def exact_posterior(prior_variance, noise, rewards):
    """Mean and variance of a number with a zero-mean Gaussian prior, seen through noise."""
    variance = 1 / (1 / prior_variance + len(rewards) / noise**2)
    return variance * rewards.sum() / noise**2, variance


def test_mcmc_finds_the_exact_posterior():
    """One arm: psi ~ N(0, 1), theta ~ N(psi, 1), so theta ~ N(0, 2), seen ten times.

    The mean of S draws has a standard error of sd / sqrt(ESS); NUTS on this target gives an
    effective sample size of at least S / 4, so 5 standard errors are 10 sd / sqrt(S).
    """
    rewards = np.random.default_rng(1).normal(1.0, 0.7, 10)
    mcmc = MCMC(
        NUTS(mab([[1.0]], noise=0.7).program), num_warmup=200, num_samples=800, progress_bar=False
    )
    mcmc.run(jax.random.key(0), np.ones((10, 1)), np.zeros(10, int), rewards)
    drawn = mcmc.get_samples()
    mean, variance = exact_posterior(2.0, 0.7, rewards)
    assert drawn["action"].shape == (800, 1, 1)
    assert abs(np.mean(drawn["action"]) - mean) < 10 * np.sqrt(variance / 800)


def test_svi_finds_the_exact_posterior_of_one_number():
    """A Gaussian guide is exact for a single Gaussian number, so only the optimiser errs."""
    hierarchy = Hierarchy([Level("action", 1)], Gaussian(0.7), 1)
    rewards = np.random.default_rng(1).normal(1.0, 0.7, 10)
    guide = AutoNormal(hierarchy.program)
    svi = SVI(hierarchy.program, guide, Adam(0.02), Trace_ELBO(num_particles=10))
    observed = (jnp.ones((10, 1)), jnp.zeros(10, int), jnp.asarray(rewards))
    result = svi.run(jax.random.key(0), 600, *observed, progress_bar=False)
    mean, variance = exact_posterior(1.0, 0.7, rewards)
    found = guide.median(result.params)["action"].item()
    assert abs(found - mean) < 0.2 * np.sqrt(variance)
    assert result.params["action_auto_scale"].item() == pytest.approx(np.sqrt(variance), rel=0.2)


@pytest.mark.slow
def test_mcmc_svi_and_predictive_take_every_learned_site(hierarchy, data):
    sites = {"effect_scale", "effect_base", "action_weights_effect", "action", "reward_noise"}
    mcmc = MCMC(NUTS(hierarchy.program), num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(0), *data)
    drawn = mcmc.get_samples()
    assert set(drawn) == {*sites, "effect"}
    assert all(np.isfinite(value).all() for value in drawn.values())

    guide = AutoNormal(hierarchy.program)
    svi = SVI(hierarchy.program, guide, Adam(0.01), Trace_ELBO())
    fitted = svi.run(jax.random.key(0), 20, *data, progress_bar=False)
    assert np.isfinite(fitted.losses).all()
    assert {name.removesuffix("_auto_loc") for name in fitted.params if "_loc" in name} == sites

    seen = Predictive(hierarchy.program, drawn)(jax.random.key(1), data.contexts, data.actions)
    assert seen["reward"].shape == (5, 20)


def test_relations_that_render_model_draws(hierarchy, data):
    """What `render_model` turns into a picture: arrows, plates and the observed site."""
    relations = get_model_relations(hierarchy.program, tuple(data))
    arrows = {child: set(above) for child, above in relations["sample_sample"].items()}
    assert arrows == {
        "effect_scale": set(),
        "effect_base": set(),
        "effect": {"effect_scale", "effect_base"},
        "action_weights_effect": set(),
        "action": {"effect", "action_weights_effect"},
        "reward_noise": set(),
        "reward": {"action", "reward_noise"},
    }
    assert relations["observed"] == ["reward"]
    plates = {name: set(inside) for name, inside in relations["plate_sample"].items()}
    assert plates == {
        "effect_plate": {"effect_base"},
        "action_plate": {"action"},
        "observation": {"reward"},
    }


def test_render_model(hierarchy, data):
    from numpyro.contrib.render import render_model

    source = render_model(hierarchy.program, tuple(data)).source
    assert "effect -> action" in source


def test_handlers_can_condition_a_level(data):
    """The program is a plain NumPyro model: handlers compose with it."""
    from numpyro import handlers

    hierarchy = Hierarchy([Level("action", 3)], Bernoulli(), 1)
    program = handlers.condition(hierarchy.program, {"action": jnp.full((3, 1), 50.0)})
    clicks = handlers.seed(program, 0)(data.contexts, data.actions)
    assert np.array_equal(clicks, np.ones(20))
