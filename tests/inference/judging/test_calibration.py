"""`calibrate` passes what is right and catches what is not."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from mistakes import as_a_user
from mixts.inference import (
    Backend,
    Calibration,
    ClosedForm,
    Laplace,
    Nuts,
    Posterior,
    Program,
    Status,
    Svi,
    Trouble,
    calibrate,
)
from mixts.inference.judging import calibration
from mixts.inference.judging.generative import simulated
from mixts.models import Gaussian, Hierarchy, Level, glm, linear

WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (5, 2))
EXACT = linear(WEIGHTS, 2, effect_cov=3.0)
OF_DATA = ["log-likelihood", "log joint density", "best reward"]


@pytest.fixture(scope="module")
def exact() -> Calibration:
    return calibrate(EXACT, ClosedForm, simulations=400, observations=20, key=jax.random.key(1))


def with_noise(hierarchy: Hierarchy, noise: float) -> ClosedForm:
    """A backend that assumes another noise than the rewards have."""
    return ClosedForm(replace(hierarchy, reward=Gaussian(noise)))


def test_an_exact_posterior_passes(exact):
    assert exact.p_value > 0.01
    assert list(exact.ranks) == ["effect", "action", *OF_DATA]
    assert exact.ranks["action"].shape == (400, 10)
    assert exact.ranks["effect"].max() <= exact.draws == 99
    # 400 simulations of 14 numbers: a uniform rank's variance is known to about 1 / sqrt(400).
    assert np.abs(exact.table["spread"] - 1).max() < 0.25


def test_an_overconfident_posterior_fails():
    result = calibrate(EXACT, lambda h: with_noise(h, 0.3), simulations=400, observations=20)
    assert result.p_value < 0.01
    assert result.table.loc["action", "spread"] > 1.2


def test_a_posterior_too_wide_fails():
    result = calibrate(EXACT, lambda h: with_noise(h, 4.0), simulations=400, observations=20)
    assert result.p_value < 0.01
    assert result.table.loc["action", "spread"] < 0.9


@pytest.mark.slow
def test_clicks_run_and_the_deviation_is_reported():
    """The paper's scheme is far off in the log-likelihood; expanding under the hierarchy is not."""
    clicks = glm(WEIGHTS, 2, effect_cov=3.0)
    tables = {
        sites: calibrate(
            clicks, lambda h, sites=sites: Laplace(h, sites=sites, capacity=8), simulations=200
        ).table
        for sites in ("tilted", "mle")
    }
    bias = {sites: abs(table.loc["log-likelihood", "bias"]) for sites, table in tables.items()}
    assert bias["tilted"] < 0.3 < bias["mle"]


class Prior(Backend):
    """Draws of the prior, whatever the data: of all unknowns, or of the levels alone."""

    hierarchy: Hierarchy
    levels_alone: bool = eqx.field(default=False, static=True)

    def init(self, key=None, *, room=0):
        return ()

    def update(self, state, context, action, reward):
        return state

    def condition(self, state, contexts, actions, rewards):
        return state

    def sample(self, key, state):
        return self.hierarchy.sample_prior(key)

    def sample_unknowns(self, key, state, n):
        if self.levels_alone:
            return super().sample_unknowns(key, state, n)
        target = Nuts(self.hierarchy).target
        return jax.vmap(lambda k: simulated(target, k, 1)[0])(jax.random.split(key, n))

    def sample_scores(self, key, state, context):
        raise NotImplementedError

    def posterior(self, state):
        return Posterior({}, {}, None, self, state)

    def status(self, state):
        return Status({Trouble.UNCONVERGED: 1})


def all_unknown() -> Hierarchy:
    """Weights, scale and noise are learned."""
    weights = dist.Normal(0.0, 1.0).expand((3, 2)).to_event(2)
    action = Level("action", 3, parents={"effect": weights}, scale=dist.HalfNormal(1.0))
    return Hierarchy([Level("effect", 2), action], Gaussian(dist.HalfNormal(1.0)), 2)


@pytest.fixture(scope="module")
def ignorant() -> Calibration:
    return calibrate(all_unknown(), Prior, simulations=200, observations=10, draws=49)


def test_all_that_is_learned_is_ranked(ignorant):
    shapes = {name: ranks.shape[1] for name, ranks in ignorant.ranks.items()}
    learned = {"action_scale": 1, "action_weights_effect": 6, "reward_noise": 1}
    assert shapes == {"effect": 4, "action": 6} | learned | dict.fromkeys(OF_DATA, 1)


def test_a_posterior_that_ignores_the_data_is_caught_by_quantities_of_the_data(ignorant):
    """Ranks of the unknowns are uniform under the prior; densities are not."""
    table = ignorant.table
    assert (table.drop(index=OF_DATA)["p_value"] > 0.01).all()
    assert table.loc["log joint density", "p_value"] < 1e-6
    assert abs(table.loc["log joint density", "bias_z"]) > 5


def test_what_a_backend_takes_as_known_is_left_out():
    hierarchy = Hierarchy([Level("action", 2)], Gaussian(dist.HalfNormal(1.0)), 1)
    levels = partial(Prior, levels_alone=True)
    found = calibrate(hierarchy, levels, simulations=2, observations=3, draws=9)
    assert list(found.ranks) == ["action", "best reward"]


def test_a_density_sees_effects_that_stay_at_their_prior():
    """Laplace on a link with no slope at its start may leave the effects where they were."""
    levels = [Level("effect", 2), Level("action", 3, parents={"effect": np.eye(2)[[0, 1, 0]]})]
    hierarchy = Hierarchy(levels, Gaussian(0.5), 1)

    class Forgetful(ClosedForm):
        def sample_unknowns(self, key, state, n):
            of_prior = {"effect": jax.random.normal(key, (n, 2, 1))}
            return super().sample_unknowns(key, state, n) | of_prior

    table = calibrate(hierarchy, Forgetful, simulations=200, observations=20, draws=49).table
    assert (table.drop(index="log joint density")["p_value"] > 0.01).all()
    assert table.loc["log joint density", "p_value"] < 1e-6


def test_a_wrong_spread_is_seen_in_all_numbers_together():
    """Ranks with a variance 8% too large in each of ten numbers.

    One number has a standard error of 0.9 / sqrt(300) = 5% and is not seen alone; the mean of ten has
    one of 1.6%.
    """
    shares = np.random.default_rng(0).beta(0.86, 0.86, (300, 10))
    row = Calibration({"action": (shares * 100).astype(int)}, 99, "narrow").table.loc["action"]
    assert 1.05 < row["spread"] < 1.15
    assert row["spread_z"] > 4
    assert row["p_value"] < 1e-3
    assert abs(row["bias_z"]) < 3


def test_equal_draws_are_ranked_at_random():
    """A truth among equal draws has any rank; all zeros would be a rank that never varies."""
    drawn, true = {"a": jnp.zeros((9, 1))}, {"a": jnp.zeros(1)}
    ranks = [int(calibration._ranks(jax.random.key(i), drawn, true)["a"][0]) for i in range(50)]
    assert min(ranks) == 0
    assert max(ranks) == 9


def test_trouble_is_shown(ignorant, exact):
    assert "200 fits stopped before they had converged" in repr(ignorant)
    assert "fits" not in repr(exact)
    assert "spread_z" in repr(exact)


@pytest.mark.slow
def test_chains_pass_with_all_unknown():
    """Weights known: their sign and that of the effects could not be told apart."""
    action = Level("action", 5, parents={"effect": WEIGHTS}, scale=dist.HalfNormal(1.0))
    hierarchy = Hierarchy([Level("effect", 2), action], Gaussian(dist.HalfNormal(1.0)), 1)
    result = calibrate(
        hierarchy,
        lambda h: Nuts(h, chains=1, warmup=300, samples=600, capacity=20, target_accept=0.9),
        simulations=200,
        observations=20,
    )
    print("\n", result, sep="")
    assert {"action_scale", "reward_noise"} < set(result.ranks)
    assert result.p_value > 0.01


@pytest.mark.slow
def test_chains_pass():
    """Clicks, where there is no exact posterior to compare with."""
    clicks = glm(WEIGHTS, 2, effect_cov=3.0)
    result = calibrate(
        clicks,
        lambda h: Nuts(h, chains=1, warmup=200, samples=400, capacity=20),
        simulations=200,
        observations=20,
    )
    print("\n", result.table.to_string(), sep="")
    assert result.p_value > 0.01


def test_a_program_written_by_hand():
    """Its own law of contexts reaches it: a column of days, which are whole numbers."""

    def drift(actions, day, rewards=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        score = numpyro.deterministic("score", slope[actions] * day)
        numpyro.sample("reward", dist.Normal(score, 0.5), obs=rewards)

    def days(key, n):
        return jax.random.randint(key, (n, 1), 0, 5)

    program = Program(drift, dim=1, scores="score", num_actions=2)
    backend = Svi(program, fit_steps=300)
    result = calibrate(program, backend, simulations=20, observations=6, draws=19, contexts=days)
    assert set(result.ranks) >= {"slope", "log-likelihood"}
    with pytest.raises(
        ValueError, match=r"contexts\(key, 6\) has shape \(6, 3\); expected \(6, 1\)"
    ):
        calibrate(program, backend, observations=6, contexts=lambda key, n: np.ones((n, 3)))


def test_the_same_key_gives_the_same_ranks(exact):
    again = calibrate(
        EXACT, ClosedForm(EXACT), simulations=400, observations=20, key=jax.random.key(1), batch=7
    )
    for name in exact.ranks:
        assert np.array_equal(exact.ranks[name], again.ranks[name])


def test_p_values_of_uniform_ranks_are_uniform():
    """Of 200 sets of uniform ranks, 5% fall below 0.05: five standard errors are 0.08."""
    rng = np.random.default_rng(0)
    p = [Calibration({"a": rng.integers(0, 100, (300, 1))}, 99, "none").p_value for _ in range(200)]
    assert abs(np.mean(np.array(p) < 0.05) - 0.05) < 0.08
    assert abs(np.mean(np.array(p) < 0.5) - 0.5) < 5 * 0.5 / np.sqrt(200)


def test_the_picture_has_a_panel_and_a_band_for_each(exact):
    figure = exact.plot()
    assert [axis.get_title() for axis in figure.axes[: len(exact.ranks)]] == list(exact.ranks)
    for axis, ranks in zip(figure.axes, exact.ranks.values(), strict=False):
        assert len(axis.lines) == 1 + ranks.shape[1]
    assert "ClosedForm" in repr(exact)


def test_bad_input():
    with as_a_user(), pytest.raises(TypeError, match="expected a Hierarchy"):
        calibrate(3, ClosedForm)
    with (
        as_a_user(),
        pytest.raises(ValueError, match="simulations: got 0; expected a whole number"),
    ):
        calibrate(EXACT, ClosedForm, simulations=0)
    with as_a_user(), pytest.raises(TypeError, match="a function that makes one"):
        calibrate(EXACT, lambda h: 3)
