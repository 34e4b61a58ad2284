"""`Svi`: guides that find a Gaussian posterior exactly, as far as their form allows."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from mistakes import cases, check_refused
from mixts.inference import ClosedForm, Svi, Trouble
from sampling import (
    BAD,
    bad_rows,
    common_taste,
    common_taste_hierarchy,
    deviations,
    exact,
    linear_problem,
    troubles,
    unoptimised,
)

PROBLEM = linear_problem()
N, K, L, D = len(PROBLEM.rewards), 20, 3, 2
CAPACITY, SAMPLES = 512, 100_000

# In deviations, and as a share. Where moments are those of draws, of 46 means none is further off than
# 4 / sqrt(100,000) = 0.013, of 46 deviations none by more than 4 / sqrt(200,000) = 0.009, but with
# chance 92 * 6e-5 = 0.6%. The rest is for the fit.
MEANS, DEVIATIONS = 0.05, 0.05


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


@jax.jit
def updated(backend, state, contexts, actions, rewards):
    """One `update` for each row, in a scan; also how the fit looked after each."""

    def step(state, row):
        state = backend.update(state, *row)
        return state, (state.elbo, state.rise > 4 * state.noise + 0.1)

    return jax.lax.scan(step, state, (contexts, actions, rewards))


def make(guide: str = "full_rank", **changes) -> Svi:
    settings = {"guide": guide, "rank": 5, "samples": SAMPLES, "capacity": CAPACITY} | changes
    return Svi(PROBLEM.hierarchy, **settings)


@pytest.fixture(scope="module")
def backend(compiled_fast):
    return make()


@pytest.fixture(scope="module")
def before(backend):
    return backend.init(jax.random.key(0))


@pytest.fixture(scope="module")
def conditioned(backend, before):
    return backend.condition(before, *PROBLEM.seen)


@pytest.fixture(scope="module")
def played(backend, before):
    """The state after an update for each observation, and how the fit looked after each."""
    return updated(backend, before, *PROBLEM.seen)


@pytest.fixture(scope="module")
def mean_field():
    backend = make("mean_field")
    return backend, backend.condition(backend.init(jax.random.key(0)), *PROBLEM.seen)


@pytest.fixture(scope="module")
def low_rank():
    backend = make("low_rank")
    return backend, backend.condition(backend.init(jax.random.key(0)), *PROBLEM.seen)


@pytest.fixture(scope="module")
def truth():
    return exact(PROBLEM.hierarchy, PROBLEM.seen)


@pytest.fixture(scope="module")
def precision():
    """Of all unknowns, effects first: what the density of the hierarchy and the data say."""
    weights = np.asarray(PROBLEM.hierarchy.actions.parents["effect"], float)
    maps = np.kron(weights, np.eye(D))  # from all effects to all actions
    data = np.zeros((K * D, K * D))
    for context, action in zip(PROBLEM.contexts, PROBLEM.actions, strict=True):
        rows = slice(action * D, (action + 1) * D)
        data[rows, rows] += np.outer(context, context)
    return np.block([[np.eye(L * D) / 3.0 + maps.T @ maps, -maps.T], [-maps, np.eye(K * D) + data]])


def assert_close(found, truth, means: float = MEANS, spread: float = DEVIATIONS) -> None:
    for level, mean in truth.mean.items():
        sd = deviations(truth, level)
        assert np.max(np.abs(found.mean[level] - mean) / sd) < means, level
        assert np.max(np.abs(deviations(found, level) / sd - 1)) < spread, level


def assert_tracks(found, truth) -> None:
    """In 20 steps at half the stable size, falling to a tenth of it.

    They take `exp(-20 * 0.4 * 0.3) = 10%` of what is new in an observation to be still missing in the
    means, and leave the covariances of the actions last seen some ten rounds behind.
    """
    assert_close(found, truth, means=0.1, spread=0.1)
    off = [(found.mean[k] - mean) / deviations(truth, k) for k, mean in truth.mean.items()]
    assert np.sqrt(np.mean(np.concatenate(off) ** 2)) < MEANS


class TestFullRank:
    """K = 20, L = 3, d = 2 and 300 observations, where the posterior is known."""

    def test_moments(self, backend, conditioned, truth):
        posterior = backend.posterior(conditioned)
        assert_close(posterior, truth)
        for level, cov in truth.cov.items():
            sd = deviations(truth, level)
            scale = sd[:, :, None] * sd[:, None, :]
            assert np.max(np.abs(posterior.cov[level] - cov) / scale) < 2 * DEVIATIONS, level
        assert posterior.log_evidence is None

    def test_bound_is_the_evidence(self, conditioned, truth):
        """It falls short by the divergence of the guide from the posterior, and by its own noise.

        If each of 46 unknowns is off by a mean of 0.02 deviations and a deviation of 1%, the
        divergence is at most 46 (0.02^2 / 2 + 0.01^2) = 0.014 nats. The bound is a sum of hundreds of
        float32 terms.
        """
        evidence = float(truth.log_evidence)
        tolerance = 4 * float(conditioned.noise) + 0.014 + 1e-5 * abs(evidence)
        assert tolerance < 0.1
        assert abs(float(conditioned.elbo) - evidence) < tolerance

    def test_before_any_data(self, backend, before):
        """The prior, whose evidence is one."""
        assert abs(float(before.elbo)) < 4 * float(before.noise) + 0.014
        nothing = tuple(rows[:0] for rows in PROBLEM.seen)
        assert_close(backend.posterior(before), exact(PROBLEM.hierarchy, nothing))

    def test_status(self, backend, before, conditioned):
        assert backend.status(before).ok
        assert backend.status(conditioned).ok

    def test_too_few_steps(self, before):
        hasty = make(fit_steps=40)
        state = hasty.condition(before, *PROBLEM.seen)
        assert Trouble.RISING in hasty.status(state)
        assert "more steps" in str(hasty.status(state))

    def test_too_noisy_to_tell(self, backend, conditioned):
        """46 unknowns that fit make a noise of less than sqrt(46) = 6.8 nats."""
        for noise, expected in ((6.0, set()), (7.0, {Trouble.NOISY})):
            state = conditioned._replace(noise=jnp.asarray(noise))
            assert troubles(backend.status(state)) == expected

    def test_a_context_for_each_action(self, backend, before, conditioned):
        """Only that of the action taken matters: the bound is the same, bit by bit."""
        contexts, actions, rewards = PROBLEM.seen
        each = np.random.default_rng(1).normal(size=(N, K, D))
        each[np.arange(N), actions] = contexts
        found = backend.condition(before, each, actions, rewards)
        np.testing.assert_array_equal(found.buffer.contexts, conditioned.buffer.contexts)
        assert float(found.elbo) == float(conditioned.elbo)

    def test_moments_are_the_guides_own(self, backend, conditioned):
        """Without the error of draws: `samples` does not matter where vectors are unknowns themselves."""
        few = make(samples=2).posterior(conditioned)
        many = backend.posterior(conditioned)
        for level in ("effect", "action"):
            np.testing.assert_array_equal(few.mean[level], many.mean[level])
            np.testing.assert_array_equal(few.cov[level], many.cov[level])

    @pytest.mark.slow
    def test_many_unknowns(self):
        """206 of them, eight draws a step: the means and deviations that 46 have to meet."""
        problem = linear_problem(K=100, n=500)
        backend = Svi(problem.hierarchy, capacity=500)
        before = backend.init(jax.random.key(0))
        state = backend.condition(before, *problem.seen)
        assert backend.status(before).ok
        assert backend.status(state).ok
        truth = exact(problem.hierarchy, problem.seen)
        assert_close(backend.posterior(state), truth)
        assert abs(float(state.elbo - truth.log_evidence)) < 0.1


class TestGrowingData:
    def test_updates_track_the_posterior(self, backend, played, truth):
        """Twenty small steps a round are enough once an observation changes little."""
        state, _ = played
        assert int(state.buffer.num_observations) == N
        assert_tracks(backend.posterior(state), truth)

    def test_the_bound_tracks_the_evidence(self, played):
        """In every round from the 20th on, when every new reward is mostly expected.

        The bound is a mean over five steps of eight draws from a guide that trails one observation
        behind: within a nat on average, where the evidence falls by 1.5 nats a round.
        """
        _, (bounds, rising) = played
        backend = ClosedForm(PROBLEM.hierarchy)

        def step(state, row):
            state = backend.update(state, *row)
            return state, state.log_evidence

        _, evidence = jax.lax.scan(step, backend.init(), PROBLEM.seen)
        gap = np.asarray(bounds - evidence)[20:]
        assert np.mean(np.abs(gap)) < 0.5
        assert np.max(gap) < 1.0
        assert np.mean(rising[20:]) < 0.1

    def test_a_surprise(self, backend, conditioned):
        """A reward some 20 deviations off: the fit is not done in a round, says so, and gets there."""
        contexts, actions, rewards = (rows.copy() for rows in PROBLEM.seen)
        contexts[0], actions[0], rewards[0] = 1.0, 7, 40.0
        actions[1:] = -1  # no more observations
        state, (_, rising) = updated(backend, conditioned, contexts, actions, rewards)
        assert rising[0]
        assert not np.any(rising[-100:])
        assert troubles(backend.status(state)) == {Trouble.REJECTED}
        first = contexts[:1], actions[:1], rewards[:1]
        seen = [np.concatenate(rows) for rows in zip(PROBLEM.seen, first, strict=True)]
        assert_close(backend.posterior(state), exact(PROBLEM.hierarchy, seen))

    def test_more_rounds_than_room(self, backend, conditioned):
        state, _ = updated(backend, conditioned, *PROBLEM.seen)
        assert int(state.buffer.num_observations) == state.buffer.capacity == CAPACITY
        assert int(state.rejected) == 2 * N - CAPACITY

    def test_room_is_made_outside_jit(self, backend, conditioned):
        for more, capacity in ((CAPACITY - N, CAPACITY), (CAPACITY, 2 * CAPACITY), (1000, 2048)):
            buffer = backend.reserve(conditioned, more).buffer
            assert buffer.capacity == capacity
            np.testing.assert_array_equal(buffer.rewards[:N], conditioned.buffer.rewards[:N])
            assert np.all(buffer.actions[N:] == -1)


class TestBadObservations:
    def test_inside_jit(self, backend, before):
        """They are counted; the good ones among them are all there, and the guide stays finite."""
        good = tuple(rows[: N - len(BAD)] for rows in PROBLEM.seen)
        places = np.arange(len(BAD)) * 7
        rows = [
            np.insert(g, places, b, axis=0) for g, b in zip(good, bad_rows(PROBLEM), strict=True)
        ]
        state, (bounds, _) = updated(backend, before, *rows)
        assert int(state.rejected) == len(BAD)
        assert int(state.buffer.num_observations) == N - len(BAD)
        for kept, expected in zip(state.buffer[:3], good, strict=True):
            np.testing.assert_allclose(kept[: N - len(BAD)], expected, rtol=1e-6)
        assert np.all(np.isfinite(bounds))
        assert_tracks(backend.posterior(state), exact(PROBLEM.hierarchy, good))

    @pytest.mark.parametrize("name", BAD)
    def test_concrete(self, backend, before, name):
        row = list(BAD).index(name)
        context, action, reward = (rows[row] for rows in bad_rows(PROBLEM))
        with pytest.raises(ValueError, match="every entry must be"):
            backend.update(before, context, int(action), float(reward))
        with pytest.raises(ValueError, match="every entry must be"):
            backend.condition(before, context[None], action[None], reward[None])


class TestDraws:
    def test_sample(self, backend, conditioned, truth):
        """20,000 draws: means within 4 / sqrt(20,000) = 0.028 deviations and 0.04 for the fit."""
        keys = jax.random.split(jax.random.key(2), 20_000)
        draws = jax.jit(jax.vmap(lambda key: backend.sample(key, conditioned)))(keys)
        for level, mean in truth.mean.items():
            off = np.abs(np.mean(draws[level], 0) - mean) / deviations(truth, level)
            assert np.max(off) < 0.028 + 0.04
            share = np.std(draws[level], 0) / deviations(truth, level)
            assert np.max(np.abs(share - 1)) < 0.02 + 0.04

    def test_scores(self, backend, conditioned):
        """Those of the draw with the same key, for a context shared or one for each action."""
        key, rng = jax.random.key(3), np.random.default_rng(4)
        theta = np.asarray(backend.sample(key, conditioned)["action"])
        for context in (rng.normal(size=D), rng.normal(size=(K, D))):
            scores = backend.sample_scores(key, conditioned, context)
            np.testing.assert_allclose(scores, np.sum(theta * context, 1), rtol=1e-5, atol=1e-5)
        with pytest.raises(ValueError, match=r"context has shape \(3,\)"):
            backend.sample_scores(key, conditioned, np.ones(3))

    def test_arviz(self, backend, conditioned):
        data = backend.posterior(conditioned).to_arviz(jax.random.key(6), n=50)["posterior"]
        assert data["action"].dims == ("chain", "draw", "action_id", "component")
        assert data["action"].shape == (1, 50, K, D)
        assert data["effect"].shape == (1, 50, L, D)


class TestOtherGuides:
    @pytest.mark.slow
    def test_mean_field_is_the_diagonal_of_the_precision(self, mean_field, truth, precision):
        """Of all Gaussians with a diagonal covariance the closest has `1 / sqrt(diag precision)`.

        That is less than the truth where unknowns are correlated; the means are right.
        """
        backend, state = mean_field
        posterior = backend.posterior(state)
        expected = 1 / np.sqrt(np.diag(precision))
        effects, actions = expected[: L * D].reshape(L, D), expected[L * D :].reshape(K, D)
        for level, analytic in (("effect", effects), ("action", actions)):
            found, sd = deviations(posterior, level), deviations(truth, level)
            assert np.max(np.abs(found / analytic - 1)) < DEVIATIONS, level
            assert np.max(np.abs(posterior.mean[level] - truth.mean[level]) / sd) < MEANS, level
        assert np.all(effects < 0.96 * deviations(truth, "effect")), "not a case that tells"
        assert np.all(deviations(posterior, "effect") < deviations(truth, "effect"))
        assert backend.status(state).ok

    def test_mean_field_bound(self, mean_field, truth, precision):
        """It falls short of the evidence by `(sum log diag precision - log det precision) / 2`."""
        _, state = mean_field
        shortfall = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
        assert shortfall > 0.5
        off = float(state.elbo) - (float(truth.log_evidence) - shortfall)
        assert abs(off) < 4 * float(state.noise) + 0.014 + 0.005

    @pytest.mark.slow
    def test_low_rank_is_in_between(self, low_rank, mean_field, conditioned, truth):
        """Five directions of 46: a better bound than none, a worse one than all."""
        backend, state = low_rank
        posterior = backend.posterior(state)
        noise = 4 * float(state.noise + mean_field[1].noise + conditioned.noise)
        assert float(state.elbo) > float(mean_field[1].elbo) + noise
        assert float(state.elbo) < float(conditioned.elbo) - noise
        narrow = mean_field[0].posterior(mean_field[1])
        shares = [
            np.mean(deviations(found, "effect") / deviations(truth, "effect"))
            for found in (narrow, posterior)
        ]
        assert shares[0] + 0.03 < shares[1] < 1.0 + 0.01
        off = np.abs(posterior.mean["action"] - truth.mean["action"]) / deviations(truth, "action")
        assert np.max(off) < MEANS


def unbounded(contexts, actions, rewards=None):
    """A program whose density is infinite."""
    theta = numpyro.sample("action", dist.Normal(0.0, 1.0).expand([2, 1]).to_event(2))
    numpyro.factor("spike", jnp.where(jnp.isfinite(theta[0, 0]), jnp.inf, 0.0))
    mean = jnp.sum(contexts * theta[actions], axis=-1)
    numpyro.sample("reward", dist.Normal(mean, 1.0), obs=rewards)


def test_an_infinite_density_diverges():
    backend = Svi(unbounded, dim=1, fit_steps=20, capacity=2)
    state = backend.init(jax.random.key(7))
    assert Trouble.NOT_FINITE in backend.status(state)
    assert "not finite" in str(backend.status(state))
    assert np.all(np.isfinite(backend.sample(jax.random.key(8), state)["action"]))


@pytest.mark.slow
def test_a_program_by_hand_in_the_loop():
    """Two runs of Thompson sampling under `vmap`, in a scan; then each knows what can be known.

    The last rounds have no observations, so that the guide can settle.
    """
    backend = Svi(common_taste, actions="movie", dim=2, samples=SAMPLES, capacity=64)
    assert backend.hierarchy is None
    assert "common_taste" in repr(backend)
    movies = np.random.default_rng(13).normal(size=(5, 2))

    @jax.jit
    @jax.vmap
    def play(key):
        def round_(state, row):
            key, is_last = row
            context_key, score_key, noise_key = jax.random.split(key, 3)
            context = jax.random.normal(context_key, (2,))
            action = jnp.argmax(backend.sample_scores(score_key, state, context))
            reward = context @ jnp.asarray(movies)[action] + 0.5 * jax.random.normal(noise_key)
            return backend.update(state, context, jnp.where(is_last, -1, action), reward), action

        first, rest = jax.random.split(key)
        rows = jax.random.split(rest, 160), jnp.arange(160) >= 60
        state, actions = jax.lax.scan(round_, backend.init(first), rows)
        return state, backend.posterior(state), actions

    states, posteriors, actions = play(jax.random.split(jax.random.key(14), 2))
    assert not np.array_equal(actions[0], actions[1])
    for run in range(2):
        state, posterior = jax.tree.map(lambda leaf: leaf[run], (states, posteriors))  # noqa: B023
        np.testing.assert_array_equal(state.buffer.actions[:60], actions[run, :60])
        assert (int(state.buffer.num_observations), int(state.rejected)) == (60, 100)
        truth = exact(common_taste_hierarchy(), [rows[:60] for rows in state.buffer[:3]])
        assert_close(posterior, truth, means=0.1, spread=0.1)


COUNTS = {
    name: (
        lambda name=name, value=value: Svi(PROBLEM.hierarchy, **{name: value}),
        ValueError,
        [f"Svi {name}: got {value!r}", "a whole number of at least 1"],
    )
    for name, value in {
        "rank": 0,
        "steps": -1,
        "fit_steps": 2.5,
        "particles": True,
        "samples": 0,
        "capacity": "many",
    }.items()
}
REFUSED = {
    "guide": (
        lambda: Svi(PROBLEM.hierarchy, guide="diagonal"),
        ValueError,
        ["Svi guide is 'diagonal'", "full_rank, low_rank, mean_field"],
    )
} | {
    f"learning_rate={rate}": (
        lambda rate=rate: Svi(PROBLEM.hierarchy, learning_rate=rate),
        ValueError,
        [f"Svi learning_rate is {rate}", "a positive number"],
    )
    for rate in (0.0, -0.1, float("nan"))
}


@cases(counts=COUNTS, arguments=REFUSED)
def test_refused(declare, error, parts):
    check_refused(declare, error, parts)
