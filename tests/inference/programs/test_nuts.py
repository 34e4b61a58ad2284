"""`Nuts`: chains that follow growing data to the exact posterior, and say so when they cannot."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from mistakes import cases, check_refused
from mixts.inference import ClosedForm, Nuts, Trouble, TroubleWarning, compare
from mixts.models import Data, Gaussian, Hierarchy, Level, linear
from sampling import (
    BAD,
    bad_rows,
    common_taste,
    common_taste_hierarchy,
    deviations,
    estimate,
    exact,
    linear_problem,
    site_draws,
    standard_errors_off,
    troubles,
    unoptimised,
)

CHAINS, SAMPLES, WARMUP, STEPS, WINDOW, CAPACITY = 4, 1000, 200, 4, 100, 512
PROBLEM = linear_problem()
N = len(PROBLEM.rewards)

# 46 means and 46 deviations are compared, each of them normal around the truth by the central limit
# theorem: with chance 92 * 6e-5 = 0.6% one of them is further off than this many standard errors.
MOST_ERRORS = 4.0


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


class Round(NamedTuple):
    """What is looked at after each update of a scan."""

    z: Any
    energy: Any
    adapted_at: Any
    transition: Any
    step_size: Any
    acceptance: Any


@jax.jit
def updated(backend, state, contexts, actions, rewards):
    """One `update` for each row, in a scan; also a `Round` of each."""

    def step(state, row):
        state = backend.update(state, *row)
        chains = state.chains
        return state, Round(
            chains.z,
            chains.potential_energy,
            state.adapted_at,
            chains.i,
            chains.adapt_state.step_size,
            chains.mean_accept_prob,
        )

    return jax.lax.scan(step, state, (contexts, actions, rewards))


@jax.jit
def energies(backend, state):
    """The potential and its gradient, where each chain stands."""
    potential = jax.value_and_grad(backend.target.potential)
    return jax.vmap(lambda z: potential(z, state.buffer))(state.chains.z)


@pytest.fixture(scope="module")
def backend(compiled_fast):
    return Nuts(
        PROBLEM.hierarchy,
        chains=CHAINS,
        samples=SAMPLES,
        warmup=WARMUP,
        steps=STEPS,
        capacity=CAPACITY,
    )


@pytest.fixture(scope="module")
def before(backend):
    """The state before any data."""
    return backend.init(jax.random.key(1))


@pytest.fixture(scope="module")
def conditioned(backend, before):
    return backend.condition(before, *PROBLEM.seen)


@pytest.fixture(scope="module")
def played(backend, before):
    """The state after an update for each observation, and what happened in each round."""
    return updated(backend, before, *PROBLEM.seen)


@pytest.fixture(scope="module")
def posterior(backend, conditioned):
    return backend.posterior(conditioned)


@pytest.fixture(scope="module")
def truth():
    return exact(PROBLEM.hierarchy, PROBLEM.seen)


def assert_moments(draws, truth, most: float = 0.04) -> None:
    """Means and deviations of every number of every level, within their Monte Carlo error.

    Which is at most so many deviations, or else chains that stand still would get away with it.
    """
    for level, mean in truth.mean.items():
        found, spread = estimate(draws[level]), deviations(truth, level)
        assert standard_errors_off(found.mean, found.mean_error, mean) < MOST_ERRORS, level
        off = standard_errors_off(found.deviation, found.deviation_error, spread)
        assert off < MOST_ERRORS, level
        assert np.max(found.mean_error / spread) < most, level


class TestLinearGaussian:
    """K = 20, L = 3, d = 2 and 300 observations, where the posterior is known."""

    @pytest.mark.slow
    def test_after_condition(self, backend, posterior, truth):
        assert_moments(site_draws(backend, posterior.state), truth)

    @pytest.mark.slow
    def test_after_a_scan_of_updates(self, backend, played, truth):
        state, _ = played
        assert int(state.buffer.num_observations) == N
        assert_moments(site_draws(backend, backend.posterior(state).state), truth)

    @pytest.mark.slow
    def test_before_any_data(self, backend, before):
        """The prior: effects of variance 3, actions around their weighted sums."""
        draws = site_draws(backend, backend.posterior(before).state)
        assert_moments(draws, exact(PROBLEM.hierarchy, _rows(0)), most=0.1)

    def test_posterior_is_that_of_its_draws(self, backend, posterior):
        draws = site_draws(backend, posterior.state)
        for level in ("effect", "action"):
            flat = draws[level].reshape(-1, *draws[level].shape[2:])
            np.testing.assert_allclose(posterior.mean[level], flat.mean(0), rtol=1e-4, atol=1e-5)
            for i in range(flat.shape[1]):
                expected = np.cov(flat[:, i].T)
                np.testing.assert_allclose(posterior.cov[level][i], expected, rtol=1e-3, atol=1e-5)
        assert posterior.log_evidence is None

    def test_chains_are_several_and_agree(self, backend, posterior):
        draws = site_draws(backend, posterior.state)["action"]
        assert draws.shape == (CHAINS, SAMPLES, 20, 2)
        ends = draws[:, -1].reshape(CHAINS, -1)
        apart = np.linalg.norm(ends[:, None] - ends[None], axis=-1)
        assert np.all(apart[~np.eye(CHAINS, dtype=bool)] > 0.1), "two chains are one"
        # The statistic is 1 + O(1 / draws per chain) where chains agree.
        assert np.max(split_gelman_rubin(draws)) < 1.02

    def test_status(self, backend, before, conditioned, played, posterior):
        for state in (before, conditioned, played[0], posterior.state):
            assert backend.status(state).ok
        counted = CHAINS * (WINDOW + WINDOW + SAMPLES)  # init, condition, posterior
        assert int(posterior.state.transitions) == counted

    def test_a_context_for_each_action(self, backend, before, conditioned):
        """Only that of the action taken matters: the state is the same, bit by bit."""
        contexts, actions, rewards = PROBLEM.seen
        each = np.random.default_rng(1).normal(size=(N, 20, 2))
        each[np.arange(N), actions] = contexts
        found = backend.condition(before, each, actions, rewards)
        np.testing.assert_array_equal(found.buffer.contexts, conditioned.buffer.contexts)
        for site, rows in conditioned.bank.items():
            np.testing.assert_array_equal(found.bank[site], rows)


def _rows(n):
    return tuple(rows[:n] for rows in PROBLEM.seen)


class TestGrowingData:
    def test_energies_are_those_of_all_data(self, backend, before, conditioned, played):
        """Those that a chain keeps are of its position and of what has been seen by now."""
        for state in (before, conditioned, played[0]):
            energy, slope = energies(backend, state)
            # The potential is a sum of hundreds of float32 terms.
            np.testing.assert_allclose(state.chains.potential_energy, energy, rtol=1e-5)
            for site, value in slope.items():
                np.testing.assert_allclose(state.chains.z_grad[site], value, rtol=1e-3, atol=1e-2)

    @pytest.mark.slow
    def test_a_surprise_moves_every_chain(self, backend, conditioned):
        """A reward some 20 deviations off raises the energy by hundreds.

        Against the energy before it, every new place would look that much worse, and chains would
        freeze where they stand.
        """
        context, action = np.array([1.0, 1.0]), 7
        contexts, actions, rewards = (rows.copy() for rows in PROBLEM.seen)
        contexts[0], actions[0], rewards[0] = context, action, 40.0
        actions[1:] = -1  # no more observations
        state, rounds = updated(backend, conditioned, contexts, actions, rewards)
        surprised = state._replace(chains=conditioned.chains)
        start, _ = energies(backend, surprised)
        assert np.all(start - conditioned.chains.potential_energy > 200), "not a surprise"
        assert np.all(rounds.energy[0] < start - 50), "energies of the first round"
        for chain in range(CHAINS):
            moved = rounds.z["action"][0, chain] - conditioned.chains.z["action"][chain]
            assert np.linalg.norm(moved) > 0.1
            assert np.linalg.norm(moved[action]) == np.max(np.linalg.norm(moved, axis=-1))
        # And later rounds without data keep moving.
        steps = np.diff(rounds.z["action"][:20], axis=0)
        assert np.all(np.linalg.norm(steps, axis=(-2, -1)) > 1e-3)

    def test_adaptation_starts_anew_when_data_double(self, played):
        """As soon as the observations have doubled and the adaptation before is over."""
        _, rounds = played
        adapted_at, transition = 0, WARMUP + STEPS
        expected = []
        for taken in range(1, N + 1):
            if taken >= 2 * adapted_at and transition >= WARMUP:
                adapted_at, transition = taken, 0
            transition += STEPS
            expected.append((adapted_at, transition))
        np.testing.assert_array_equal(rounds.adapted_at, [at for at, _ in expected])
        for chain in range(CHAINS):
            np.testing.assert_array_equal(rounds.transition[:, chain], [i for _, i in expected])
        assert len(set(np.asarray(rounds.adapted_at).tolist())) >= 4, "it starts several times"

    def test_step_sizes_follow(self, before, conditioned, played):
        """They change while a chain adapts, and only then."""
        _, rounds = played
        sizes, adapting = np.asarray(rounds.step_size), np.asarray(rounds.transition) < WARMUP
        changed = np.diff(sizes, axis=0) != 0
        # The round in which an adaptation ends still changes it.
        resting = ~adapting[1:] & ~adapting[:-1]
        assert resting.sum() > 100
        assert not np.any(changed & resting)
        assert np.mean(changed[adapting[1:]]) > 0.9
        # Priors of effects and actions are far more correlated than their posteriors.
        for after in (conditioned.chains.adapt_state.step_size, sizes[-1]):
            assert np.all(after > 1.5 * before.chains.adapt_state.step_size)

    def test_chains_are_never_called_stuck(self, played):
        """Even where an adaptation has just begun, with steps of the wrong size."""
        assert np.min(played[1].acceptance) > 0.1

    def test_more_rounds_than_room(self, backend, conditioned):
        """Inside `jit` the buffer cannot grow: what finds no room is counted."""
        state, _ = updated(backend, conditioned, *PROBLEM.seen)
        assert state.buffer.capacity == CAPACITY
        assert int(state.buffer.num_observations) == CAPACITY
        assert int(state.rejected) == 2 * N - CAPACITY
        np.testing.assert_allclose(
            state.buffer.rewards[N:], PROBLEM.rewards[: CAPACITY - N], rtol=1e-6
        )

    def test_room_is_made_outside_jit(self, backend, conditioned):
        for more, capacity in ((CAPACITY - N, CAPACITY), (CAPACITY, 2 * CAPACITY), (1000, 2048)):
            buffer = backend.reserve(conditioned, more).buffer
            assert buffer.capacity == capacity
            np.testing.assert_array_equal(buffer.rewards[:N], conditioned.buffer.rewards[:N])
            assert np.all(buffer.actions[N:] == -1)


class TestBadObservations:
    def test_inside_jit(self, backend, before):
        """They are counted; the good ones among them are all there, in order."""
        good = _rows(N - len(BAD))
        places = np.arange(len(BAD)) * 7
        rows = [
            np.insert(g, places, b, axis=0) for g, b in zip(good, bad_rows(PROBLEM), strict=True)
        ]
        state, _ = updated(backend, before, *rows)
        assert int(state.rejected) == len(BAD)
        assert int(state.buffer.num_observations) == N - len(BAD)
        for kept, expected in zip(state.buffer[:3], good, strict=True):
            np.testing.assert_allclose(kept[: N - len(BAD)], expected, rtol=1e-6)
        assert np.all(state.buffer.actions[N - len(BAD) :] == -1)
        energy, _ = energies(backend, state)
        assert np.all(np.isfinite(energy))
        np.testing.assert_allclose(state.chains.potential_energy, energy, rtol=1e-5)

    @pytest.mark.parametrize("name", BAD)
    def test_concrete(self, backend, before, name):
        row = list(BAD).index(name)
        context, action, reward = (rows[row] for rows in bad_rows(PROBLEM))
        with pytest.raises(ValueError, match="every entry must be"):
            backend.update(before, context, int(action), float(reward))
        with pytest.raises(ValueError, match="every entry must be"):
            backend.condition(before, context[None], action[None], reward[None])


class TestDraws:
    def test_every_draw_is_a_new_one(self, backend, conditioned):
        """However many are asked for between two rewards; all levels of one draw belong together."""
        keys = jax.random.split(jax.random.key(2), 200)
        draws = jax.vmap(lambda key: backend.sample(key, conditioned))(keys)
        assert set(draws) == {"effect", "action"}
        for level in draws:
            assert len(np.unique(np.asarray(draws[level])[:, 0, 0])) == 200
        own = draws["action"] - PROBLEM.hierarchy.actions.parents["effect"] @ draws["effect"]
        np.testing.assert_allclose(np.std(own), 1.0, atol=0.2)  # of the prior, or much wider

    def test_starts_have_seen_the_data(self, backend, conditioned):
        """A draw does not start from what was drawn when a tenth of the observations was missing."""
        old = conditioned._replace(
            seen=jnp.where(jnp.arange(WINDOW) < WINDOW - 2, int(0.9 * N), N),
            bank={
                k: v.at[jnp.arange(len(v)) % WINDOW < WINDOW - 2].set(1e6)
                for k, v in conditioned.bank.items()
            },
        )
        keys = jax.random.split(jax.random.key(2), 50)
        draws = jax.vmap(lambda key: backend.sample(key, old))(keys)
        assert np.max(np.abs(draws["action"])) < 100

    def test_scores(self, backend, conditioned):
        """Those of the draw with the same key, for a context shared or one for each action."""
        key, rng = jax.random.key(3), np.random.default_rng(4)
        theta = np.asarray(backend.sample(key, conditioned)["action"])
        shared, each = rng.normal(size=2), rng.normal(size=(20, 2))
        for context in (shared, each):
            scores = backend.sample_scores(key, conditioned, context)
            np.testing.assert_allclose(scores, np.sum(theta * context, 1), rtol=1e-5, atol=1e-5)
        with pytest.raises(ValueError, match=r"context has shape \(3,\)"):
            backend.sample_scores(key, conditioned, np.ones(3))

    def test_posterior_draws(self, backend, posterior):
        """From the long run, not from the few draws that the state had kept."""
        draws = posterior.draw(jax.random.key(5), 500)["action"]
        assert len(np.unique(np.asarray(draws)[:, 0, 0])) == 500, "one was drawn twice"

    def test_more_draws_than_there_are(self, backend, conditioned):
        """The chains run on, with randomness of the key, and what they give is the posterior."""
        held = CHAINS * WINDOW
        some, others = (
            np.asarray(backend.sample_many(jax.random.key(k), conditioned, held + 50)["action"])
            for k in (1, 2)
        )
        assert some.shape == (held + 50, 20, 2)
        assert len(np.unique(some[:, 0, 0])) == held + 50
        assert not set(others[:, 0, 0]) <= set(some[:, 0, 0])

    def test_arviz(self, posterior):
        data = posterior.to_arviz(jax.random.key(6), n=50)["posterior"]
        assert data["action"].dims[2:] == ("action_id", "component")
        assert data["action"].shape[2:] == (20, 2)
        assert data["effect"].shape[2:] == (3, 2)
        assert np.prod(data["action"].shape[:2]) >= 50


def funnel(centered: bool) -> Nuts:
    """Eight schools of which nothing is known yet: their scale may well be almost nothing."""
    schools = {"parents": {"mean": np.ones((8, 1))}, "scale": dist.HalfCauchy(1.0)}
    levels = [Level("mean", 1, cov=25.0), Level("school", 8, centered=centered, **schools)]
    return Nuts(Hierarchy(levels, Gaussian(1.0), 1), chains=2, steps=500, capacity=8)


def two_islands(contexts, actions, rewards=None):
    """Actions near 0 or near 100, with nothing in between that a trajectory could cross."""
    near = dist.Normal(np.array([0.0, 100.0]), 1.0)
    law = dist.MixtureSameFamily(dist.Categorical(probs=np.full(2, 0.5)), near)
    theta = numpyro.sample("action", law.expand([8, 1]).to_event(2))
    mean = jnp.sum(contexts * theta[actions], axis=-1)
    numpyro.sample("reward", dist.Normal(mean, 1.0), obs=rewards)


class TestDiagnostics:
    def test_chains_that_agree(self, backend, posterior):
        """Normal scores of normal draws are worth about as many as the draws themselves."""
        table = backend.diagnostics(posterior.state)
        assert list(table.columns) == ["r_hat", "ess", "draws", "divergences"]
        assert set(table.index) == {"effect", "action"}
        draws = site_draws(backend, posterior.state)
        for level, row in table.iterrows():
            assert 0.999 < row["r_hat"] < 1.02
            worst = np.min(effective_sample_size(draws[level]))
            assert 0.7 * worst < row["ess"] < 1.3 * worst
            assert row["draws"] == CHAINS * SAMPLES
            assert row["divergences"] == int(posterior.state.divergences)

    def test_one_chain_elsewhere(self, backend, posterior):
        """In one number of one chain of four."""
        bank = dict(posterior.state.bank)
        moved = bank["action"].at[SAMPLES : 2 * SAMPLES, 3, 1].add(10.0)
        table = backend.diagnostics(posterior.state._replace(bank=bank | {"action": moved}))
        assert table.loc["action", "r_hat"] > 1.5
        assert table.loc["action", "ess"] < 10
        assert table.loc["effect", "r_hat"] < 1.02

    @pytest.mark.slow
    def test_chains_that_cannot_meet(self):
        """Nothing diverges and all is accepted: R-hat alone can tell, and does.

        Both chains start all eight numbers on the same islands with a chance of 1/256.
        """
        backend = Nuts(two_islands, dim=1, samples=200, capacity=2)
        with pytest.warns(TroubleWarning, match="have not mixed"):
            state = backend.posterior(backend.init(jax.random.key(1))).state
        assert troubles(backend.status(state)) == {Trouble.UNMIXED}
        assert backend.diagnostics(state).loc["action", "r_hat"] > 1.5

    def test_too_few_draws_to_tell(self, conditioned):
        hasty = Nuts(PROBLEM.hierarchy, chains=CHAINS, steps=2)
        bank = {site: rows[: 2 * CHAINS] for site, rows in conditioned.bank.items()}
        few = conditioned._replace(bank=bank, seen=conditioned.seen[:2])
        with pytest.raises(ValueError, match=r"holds 2 draws of each chain.*posterior\(state\)"):
            hasty.diagnostics(few)

    def test_a_constant_number(self, backend, posterior):
        """It is known exactly: no NaN, while the others are judged as before."""
        bank = dict(posterior.state.bank)
        bank["action"] = bank["action"].at[:, 3, 1].set(2.0)
        found = backend.diagnostics(posterior.state._replace(bank=bank))
        expected = backend.diagnostics(posterior.state)
        assert 0.999 < found.loc["action", "r_hat"] <= expected.loc["action", "r_hat"]
        assert found.loc["action", "ess"] >= expected.loc["action", "ess"]

    def test_draws_are_those_of_the_bank(self, backend, posterior):
        draws = backend.draws(posterior.state)
        for site, expected in site_draws(backend, posterior.state).items():
            np.testing.assert_array_equal(draws[site], expected)


class TestTrouble:
    def test_a_funnel_diverges(self):
        """Chains that move the vectors themselves run into the neck; they say what to do.

        Between 2% and 10% of 1,000 transitions diverge, depending on the key.
        """
        backend = funnel(centered=True)
        state = backend.init(jax.random.key(7))
        assert int(state.transitions) == 2 * 500, "those of the adaptation do not count"
        assert int(state.divergences) > 0.01 * 1000
        assert Trouble.DIVERGING in backend.status(state)
        assert "centered=False" in str(backend.status(state))

    @pytest.mark.slow
    def test_a_funnel_that_is_not_centred_does_not(self):
        backend = funnel(centered=False)
        state = backend.init(jax.random.key(7))
        assert int(state.transitions) == 2 * 500
        assert int(state.divergences) <= 2
        assert backend.status(state).ok
        # Without data the scale is half Cauchy, and its logarithm has mean 0 and deviation pi / 2.
        log_scale = np.asarray(state.bank["school_scale"]).reshape(2, 500)
        found = estimate(log_scale)
        assert standard_errors_off(found.mean, found.mean_error, 0.0) < MOST_ERRORS
        assert standard_errors_off(found.deviation, found.deviation_error, np.pi / 2) < MOST_ERRORS

    def test_a_chain_without_finite_energy_is_stuck(self, backend, conditioned):
        """A reward so large that its square is beyond float32."""
        contexts, actions, rewards = (rows.copy() for rows in PROBLEM.seen)
        contexts[0], rewards[0] = 1.0, 1e30
        actions[1:] = -1  # no more observations
        state, rounds = updated(backend, conditioned, contexts, actions, rewards)
        assert int(state.buffer.num_observations) == N + 1
        assert not np.any(np.isfinite(rounds.energy))
        assert Trouble.STUCK in backend.status(state)

    def test_a_chain_that_hardly_moves_is_stuck(self, backend, conditioned):
        """One of them is enough."""
        accepted = conditioned.chains.mean_accept_prob.at[2].set(0.05)
        state = conditioned._replace(chains=conditioned.chains._replace(mean_accept_prob=accepted))
        assert Trouble.STUCK in backend.status(state)
        energy = conditioned.chains.potential_energy.at[1].set(jnp.nan)
        state = conditioned._replace(chains=conditioned.chains._replace(potential_energy=energy))
        assert Trouble.STUCK in backend.status(state)


def between_two(cov: float) -> Hierarchy:
    """Three actions on the way from one effect to another."""
    action = Level("action", 3, parents={"effect": [[1, 0], [0.5, 0.5], [0, 1]]}, cov=cov)
    return Hierarchy([Level("effect", 2), action], Gaussian(1.0), dim=2)


def three_actions(n: int, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(n, 2))
    return Data(contexts, rng.integers(3, size=n), contexts[:, 0] + rng.normal(size=n))


class TestChainsThatHaveNotMixed:
    """Actions tied to their effects by almost nothing: trajectories cannot be long enough."""

    @pytest.mark.parametrize("cov", [pytest.param(1e-6, marks=pytest.mark.slow), 1e-8])
    def test_status(self, cov):
        backend, data = Nuts(between_two(cov), capacity=128), three_actions(100)
        state = backend.condition(backend.init(), *data)
        assert Trouble.SATURATED in backend.status(state)
        with pytest.warns(TroubleWarning, match="have not mixed"):
            posterior = backend.posterior(state)
        assert backend.diagnostics(posterior.state)["r_hat"].max() > 1.2
        expected = {Trouble.UNMIXED, Trouble.CORRELATED, Trouble.SATURATED}
        assert troubles(posterior.status) == expected
        assert "R-hat" in str(posterior.status)

    @pytest.mark.slow
    def test_compare_shows_it(self):
        """Also of the reference."""
        hierarchy, data = between_two(1e-8), three_actions(100)
        with pytest.warns(TroubleWarning):
            found = compare(
                hierarchy, data, {"NUTS": Nuts(hierarchy, capacity=128)}, "NUTS", draws=50
            )
        assert "have not mixed" in found.table.loc["NUTS", "status"]

    @pytest.mark.slow
    def test_collinear_contexts(self):
        """An intercept and the year, twice."""
        rng = np.random.default_rng(0)
        year = rng.integers(1990, 2021, size=100).astype(float)
        rows = np.stack([np.ones(100), year, year], axis=1), rng.integers(3, size=100)
        backend = Nuts(linear(np.ones((3, 1)), 3), capacity=128)
        state = backend.condition(backend.init(), *rows, 0.001 * year + rng.normal(size=100))
        with pytest.warns(TroubleWarning, match="have not mixed"):
            assert Trouble.UNMIXED in backend.posterior(state).status


class TestManyDecisionsBetweenRewards:
    """Three actions and 12 rewards, six of them one by one, and then none for long."""

    @pytest.mark.slow
    def test_probabilities_of_being_best(self):
        """4,000 decisions give them to 0.015; draws of eight points were off by up to 0.5."""
        hierarchy, data = between_two(1.0), three_actions(12, seed=2)
        backend, context = Nuts(hierarchy, capacity=128), np.array([1.0, 0.5])
        rows = list(data)
        state = backend.condition(backend.init(), *(part[:6] for part in rows))
        for row in zip(*(part[6:] for part in rows), strict=True):
            state = backend.update(state, *row)
        truth = ClosedForm(hierarchy)
        exact_state = truth.condition(truth.init(), *rows)
        keys = jax.random.split(jax.random.key(3), 4000)
        found, expected = (
            np.bincount(_decisions(b, s, keys, context), minlength=3) / len(keys)
            for b, s in ((backend, state), (truth, exact_state))
        )
        assert 0.5 * np.abs(found - expected).sum() < 0.05


@jax.jit
def _decisions(backend, state, keys, context):
    return jax.vmap(lambda key: jnp.argmax(backend.sample_scores(key, state, context)))(keys)


def side_by_side(runs: int, run, *shared) -> None:
    """`run(weights, key, *seen, *shared)` of several problems under `vmap`, each against its truth."""
    problems = [linear_problem(seed=10 + i) for i in range(runs)]
    weights = np.stack([p.hierarchy.actions.parents["effect"] for p in problems])
    seen = [np.stack(rows) for rows in zip(*(p.seen for p in problems), strict=True)]
    keys = jax.random.split(jax.random.key(9), runs)
    over = (0, 0, 0, 0, 0, *(None for _ in shared))
    states = jax.jit(jax.vmap(run, over))(weights, keys, *seen, *shared)
    np.testing.assert_array_equal(states.buffer.num_observations, N)
    for i, problem in enumerate(problems):
        rows = {level: np.asarray(draws)[i] for level, draws in states.bank.items()}
        draws = {level: r.reshape(CHAINS, -1, *r.shape[1:]) for level, r in rows.items()}
        assert_moments(draws, exact(problem.hierarchy, problem.seen), most=0.06)


@pytest.mark.slow
def test_runs_side_by_side(before):
    """Backends built and asked under `vmap` and `jit`, each on weights and data of its own."""

    def run(w, key, contexts, actions, rewards, before):
        hierarchy = linear(w, 2, effect_cov=3.0)
        backend = Nuts(hierarchy, chains=CHAINS, steps=300, warmup=WARMUP, capacity=CAPACITY)
        return backend.condition(before, contexts, actions, rewards)

    side_by_side(2, run, before)


@pytest.mark.slow
def test_whole_runs_side_by_side():
    """From the prior, by updates and by a batch."""

    def run(w, key, contexts, actions, rewards):
        hierarchy = linear(w, 2, effect_cov=3.0)
        backend = Nuts(hierarchy, chains=CHAINS, steps=300, warmup=WARMUP, capacity=CAPACITY)
        first = contexts[:3], actions[:3], rewards[:3]

        def step(state, row):
            return backend.update(state, *row), None

        state, _ = jax.lax.scan(step, backend.init(key), first)
        return backend.condition(state, contexts[3:], actions[3:], rewards[3:])

    side_by_side(2, run)


@pytest.mark.slow
def test_a_program_by_hand_in_the_loop():
    """Thompson sampling in a scan; afterwards the draws it picks from are those of the closed form.

    The last rounds have no observations, so that there are enough draws of one posterior. A chain
    is done adapting to 60 observations 50 rounds after the 51st, when they had doubled last.
    """
    sizes = {"warmup": WARMUP, "steps": STEPS, "window": STEPS, "capacity": 64}
    backend = Nuts(common_taste, actions="movie", dim=2, **sizes)
    assert backend.hierarchy is None
    assert "common_taste" in repr(backend)
    movies = np.random.default_rng(13).normal(size=(5, 2))

    @jax.jit
    def play(key):
        def round_(state, row):
            key, is_last = row
            context_key, score_key, noise_key = jax.random.split(key, 3)
            context = jax.random.normal(context_key, (2,))
            action = jnp.argmax(backend.sample_scores(score_key, state, context))
            reward = context @ jnp.asarray(movies)[action] + 0.5 * jax.random.normal(noise_key)
            state = backend.update(state, context, jnp.where(is_last, -1, action), reward)
            return state, (action, state.bank)

        first, rest = jax.random.split(key)
        rows = jax.random.split(rest, 400), jnp.arange(400) >= 60
        return jax.lax.scan(round_, backend.init(first), rows)

    state, (actions, banks) = play(jax.random.key(14))
    np.testing.assert_array_equal(state.buffer.actions[:60], actions[:60])
    assert (int(state.buffer.num_observations), int(state.rejected)) == (60, 340)
    assert int(state.adapted_at) == 51
    assert troubles(backend.status(state)) == {Trouble.REJECTED}
    draws = {}
    for site, bank in banks.items():  # (rounds, chains * steps, ...)
        last = np.asarray(bank)[110:].reshape(-1, 2, STEPS, *bank.shape[2:])
        draws[site] = np.moveaxis(last, 1, 0).reshape(2, -1, *bank.shape[2:])
    draws["movie"] = draws["taste"] + 0.7 * draws["own"]
    truth = exact(common_taste_hierarchy(), [rows[:60] for rows in state.buffer[:3]])
    assert_moments(draws, truth, most=0.06)


COUNTS = {
    name: (
        lambda name=name, value=value: Nuts(PROBLEM.hierarchy, **{name: value}),
        ValueError,
        [f"Nuts {name}: got {value!r}", "a whole number of at least 1"],
    )
    for name, value in {
        "chains": 0,
        "steps": -1,
        "warmup": 2.5,
        "samples": True,
        "window": 0,
        "capacity": "many",
        "max_depth": 0,
    }.items()
}
RATES = {
    f"target_accept={rate}": (
        lambda rate=rate: Nuts(PROBLEM.hierarchy, target_accept=rate),
        ValueError,
        [f"Nuts target_accept is {rate}", "between 0 and 1"],
    )
    for rate in (0.0, 1.0, 80, float("nan"))
}


@cases(counts=COUNTS, rates=RATES)
def test_refused(declare, error, parts):
    check_refused(declare, error, parts)
