"""Programs written by hand: arguments by name, columns of a context, scores of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from mistakes import cases, check_refused
from mixts.bandit import ProgramProblem
from mixts.inference import Nuts, Program, Svi, best_backend, compare
from mixts.inference.buffer import empty
from mixts.inference.programs.target import as_target
from mixts.models import Data, Hierarchy
from sampling import unoptimised

DAYS, K, NOISE = 5, 3, 0.5


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def random_walk(actions, day, rewards=None):
    """Each action drifts from day to day."""
    steps = numpyro.sample("step", dist.Normal(0.0, 1.0).expand([K, DAYS]).to_event(2))
    level = numpyro.deterministic("level", jnp.cumsum(steps, axis=1))
    score = numpyro.deterministic("score", level[actions, day.astype(int)])
    numpyro.sample("reward", dist.Normal(score, NOISE), obs=rewards)


def positions(contexts, actions, place, rewards=None):
    """A fourth argument before rewards: the place on a page, which lowers all scores alike."""
    theta = numpyro.sample("action", dist.Normal(0.0, 1.0).expand([K, 2]).to_event(2))
    mean = jnp.sum(theta[actions] * contexts, axis=-1) - 0.1 * place
    numpyro.sample("reward", dist.Normal(mean, NOISE), obs=rewards)


WALK = Program(random_walk, dim=1, scores="score", num_actions=K)
PLACES = Program(positions, dim=3)


def rows(n: int = 60):
    rng = np.random.default_rng(0)
    day, actions = rng.integers(DAYS, size=n), rng.integers(K, size=n)
    truth = np.cumsum(rng.normal(size=(K, DAYS)), axis=1)
    return Data(
        day[:, None].astype(float), actions, truth[actions, day] + NOISE * rng.normal(size=n)
    )


def exact_levels(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations of the walks, which are Gaussian: by dense conditioning, action by action."""
    prior = np.minimum.outer(np.arange(1, DAYS + 1), np.arange(1, DAYS + 1)).astype(float)
    means, deviations = np.zeros((K, DAYS)), np.zeros((K, DAYS))
    for action in range(K):
        mine = np.asarray(data.actions) == action
        seen = np.eye(DAYS)[np.asarray(data.contexts)[mine, 0].astype(int)]
        gain = prior @ seen.T @ np.linalg.inv(seen @ prior @ seen.T + NOISE**2 * np.eye(mine.sum()))
        means[action] = gain @ np.asarray(data.rewards)[mine]
        deviations[action] = np.sqrt(np.diag(prior - gain @ seen @ prior))
    return means, deviations


class TestDeclaration:
    def test_columns_end_a_context(self):
        assert (WALK.columns, WALK.num_features, WALK.components) == (("day",), 0, ("day",))
        assert (PLACES.columns, PLACES.num_features) == (("place",), 2)
        assert PLACES.components == (0, 1, "place")

    def test_sites(self):
        assert WALK.shapes == {"step": (K, DAYS), "level": (K, DAYS)}
        assert (PLACES.shapes, PLACES.num_actions) == ({"action": (K, 2)}, K)

    def test_rows_reach_the_program_by_name(self):
        contexts = np.array([[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]])
        theta = np.random.default_rng(1).normal(size=(K, 2))
        law = PLACES.reward_law(
            {"action": jnp.asarray(theta)}, jnp.asarray(contexts), jnp.array([2, 0])
        )
        expected = np.sum(theta[[2, 0]] * contexts[:, :2], axis=1) - 0.1 * contexts[:, 2]
        np.testing.assert_allclose(law.mean, expected, rtol=1e-5)

    def test_a_function_makes_the_same_program(self):
        target = as_target(positions, "action", 3, "Nuts")
        assert target.levels == ("action",)
        assert (target.dim, target.num_actions) == (3, K)

    def test_scores_are_no_unknown(self):
        """They have a number for each row of a buffer."""
        target, buffer = as_target(WALK, "", None, "Nuts"), empty(7, 1)
        position = target.start(jax.random.key(0), buffer)
        assert set(position) == {"step"}
        assert set(target.unknowns(position, buffer)) == {"step", "level"}
        scores = target.scores(position, jnp.array([3.0]), buffer)
        np.testing.assert_allclose(scores, np.cumsum(position["step"], axis=1)[:, 3], rtol=1e-5)

    def test_a_context_for_each_action(self):
        position = {"action": jnp.ones((K, 2))}
        each = jnp.arange(3.0 * K).reshape(K, 3)
        found = as_target(PLACES, "", None, "Nuts").scores(position, each, empty(1, 3))
        np.testing.assert_allclose(found, each[:, :2].sum(1))


class TestFirstClass:
    def test_best_backend(self):
        backend, why, _ = best_backend(WALK)
        assert isinstance(backend, Nuts)
        assert "written by hand" in why

    def test_compare(self):
        """Svi's guide is exact here: it agrees with dense conditioning, and so does the table."""
        data = rows()
        backend = Svi(WALK, capacity=64, fit_steps=1500)
        found = compare(WALK, data, {"SVI": backend}, "SVI", context=[4.0], draws=200)
        assert found.table.loc["SVI", "mean_error"] < 0.2
        assert found.best.shape == (K, 1)
        means, deviations = exact_levels(data)
        off = (np.asarray(found.posteriors["SVI"].mean["level"]) - means) / deviations
        assert np.max(np.abs(off)) < 0.2  # 4,000 draws of the guide: 0.016 each
        last = means[:, 4]
        assert int(np.argmax(found.best["SVI"])) == int(np.argmax(last))

    def test_a_world_to_play_in(self):
        """Its rewards follow the unknowns that were drawn, on the day of the context."""
        days = np.arange(float(DAYS))[:, None]
        program, world = ProgramProblem(WALK, contexts=days).sample(jax.random.key(2))
        assert program is WALK
        level = np.cumsum(np.asarray(world.levels["step"]), axis=1)
        for day in range(DAYS):
            context = jnp.array([float(day)])
            np.testing.assert_allclose(world.mean_rewards(context), level[:, day], rtol=1e-5)
        keys = jax.random.split(jax.random.key(3), 400)
        drawn = jax.vmap(lambda key: world.reward(key, jnp.array([2.0]), jnp.array(1)))(keys)
        assert abs(float(jnp.mean(drawn)) - level[1, 2]) < 4 * NOISE / np.sqrt(400)
        assert float(world.context(jax.random.key(4))[0]) in days


def without_rewards(contexts, actions):
    pass


REFUSED = {
    "no rewards": (
        lambda: Program(without_rewards, dim=2),
        TypeError,
        ["without_rewards(contexts, actions)", "arguments named contexts, actions, rewards"],
    ),
    "too few numbers": (
        lambda: Nuts(positions, dim=1),
        ValueError,
        [
            "Nuts: Program: positions(contexts, actions, place, rewards)",
            "leave it out, or raise dim",
        ],
    ),
    "numbers that nothing takes": (
        lambda: Program(random_walk, dim=2, scores="score", num_actions=K),
        ValueError,
        ["the columns day", "dim=2", "contexts for the other numbers"],
    ),
    "no such scores": (
        lambda: Program(random_walk, dim=1, scores="value", num_actions=K),
        ValueError,
        ["scores is 'value'", "no such site", "numpyro.deterministic('value', <score>)"],
    ),
    "scores of another shape": (
        lambda: Program(random_walk, dim=1, scores="level", num_actions=K),
        ValueError,
        [f"one of shape ({K}, {DAYS})", "shape (2,)"],
    ),
    "how many actions": (
        lambda: Program(random_walk, dim=1, scores="score"),
        ValueError,
        ["num_actions=<K>"],
    ),
    "a problem of a hierarchy": (
        lambda: ProgramProblem(Hierarchy),
        TypeError,
        ["ProgramProblem: got", "Program(function, dim=...)"],
    ),
}


@cases(program=REFUSED)
def test_refused(declare, error, parts):
    check_refused(declare, error, parts)
