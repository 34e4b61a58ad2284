"""An agent that acts, waits, and learns: decisions and posteriors are those of the policy itself."""

import threading

import jax
import numpy as np
import pytest

from mistakes import as_a_user
from mixts.bandit import (
    Agent,
    AgentError,
    AlreadyRewarded,
    ExpiredDecision,
    HierTS,
    LinTS,
    LinUCB,
    Position,
    ThompsonSampling,
    UniformRandom,
    UnknownDecision,
)
from mixts.inference import ClosedForm, Factored, Laplace, Nuts
from mixts.models import Bernoulli, Hierarchy, Level, glm, linear
from sampling import unoptimised
from tolerance import tolerance

K, L, D = 7, 2, 3
NAMES = [f"movie {i}" for i in range(K)]


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def weights(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (K, L))


def world(**options) -> Hierarchy:
    return linear(weights(), D, noise=0.5, **options)


def mets(hierarchy: Hierarchy | None = None) -> ThompsonSampling:
    return ThompsonSampling(ClosedForm(hierarchy or world()))


def observations(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), rng.integers(0, K, n), rng.normal(size=n)


def posterior(agent: Agent):
    state = agent.state()
    return state.policy.backend.posterior(state.posterior)


def check_same_posterior(agent: Agent, expected, loosen: float = 1.0) -> None:
    ours = posterior(agent)
    for level in expected.mean:
        np.testing.assert_allclose(ours.mean[level], expected.mean[level], **tolerance(loosen))
        np.testing.assert_allclose(ours.cov[level], expected.cov[level], **tolerance(loosen))


class TestActing:
    def test_decisions_are_the_policys(self, precision):
        """Decision `t` is what the policy does with the t-th child of the seed's key."""
        policy, agent = mets(), Agent(mets(), seed=5)
        state = policy.init(jax.random.key(0))
        x, _, y = observations(20)
        for t in range(20):
            key = jax.random.fold_in(jax.random.key(5), t)
            expected = int(policy.act(key, state, jax.numpy.asarray(x[t])))
            decision = agent.act(x[t])
            assert (decision.id, decision.index, decision.action) == (t, expected, expected)
            assert decision.probability is None
            agent.reward(decision.id, y[t])
            state = policy.update(state, x[t], expected, y[t])

    def test_many_decisions_are_those_of_one_at_a_time(self):
        one, many = Agent(mets(), seed=1), Agent(mets(), seed=1)
        x, _, _ = observations(13)
        decisions = many.act_many(x)
        assert list(decisions) == [one.act(context) for context in x]
        assert len(decisions) == 13
        assert decisions.actions == [d.action for d in decisions]
        assert list(decisions[3:5]) == [decisions[3], decisions[4]]

    def test_contexts_of_each_action(self):
        """A row for each action is met by the action that is chosen, one at a time and many."""
        agent, policy = Agent(mets(), seed=2), mets()
        x = np.random.default_rng(3).normal(size=(4, K, D)).astype("f")
        first = [agent.act(rows) for rows in x]
        rest = agent.act_many(x)
        state = policy.init(jax.random.key(0))
        for t, decision in enumerate([*first, *rest]):
            key = jax.random.fold_in(jax.random.key(2), t)
            assert decision.index == int(policy.act(key, state, jax.numpy.asarray(x[t % 4])))
        ids = [decision.id for decision in first] + rest.ids.tolist()
        agent.reward(ids, np.arange(8.0))
        met = np.concatenate([x, x])[np.arange(8), [d.index for d in [*first, *rest]]]
        backend = ClosedForm(world())
        expected = backend.condition(
            backend.init(), met, [d.index for d in [*first, *rest]], np.arange(8.0)
        )
        check_same_posterior(agent, backend.posterior(expected))

    def test_eligible_actions_only(self):
        agent = Agent(mets(), labels=NAMES)
        x, _, _ = observations(60)
        mask = np.arange(K) >= 4
        by_name = [agent.act(c, eligible=NAMES[4:]).index for c in x[:20]]
        by_position = [agent.act(c, eligible=Position([4, 5, 6])).index for c in x[20:40]]
        by_mask = [agent.act(c, eligible=mask).index for c in x[40:]]
        for chosen in (by_name, by_position, by_mask, agent.act_many(x, eligible=mask).indices):
            assert set(chosen) <= {4, 5, 6}
            assert len(set(chosen)) > 1
        assert agent.act(x[0], eligible=["movie 2"]).action == "movie 2"

    def test_the_same_draw_decides_among_the_eligible(self):
        """Leaving out the winner leaves the second: eligibility does not change the draw."""
        x, _, _ = observations(1)
        best, second, third = Agent(mets(), seed=3).slate(x[0], 3).indices
        others = [i for i in range(K) if i != best]
        assert Agent(mets(), seed=3).act(x[0]).index == best
        assert Agent(mets(), seed=3).act(x[0], eligible=others).index == second
        assert Agent(mets(), seed=3).act(x[0], eligible=[third]).index == third

    def test_slates_are_the_best_of_one_draw_in_order(self):
        policy, agent = mets(), Agent(mets(), seed=4)
        x, _, _ = observations(1)
        state = policy.init(jax.random.key(0))
        key = jax.random.fold_in(jax.random.key(4), 0)
        scores = policy.scores(key, state, jax.numpy.asarray(x[0], "f"))
        slate = agent.slate(x[0], 3)
        assert slate.indices.tolist() == np.argsort(-np.asarray(scores))[:3].tolist()
        assert slate.ids.tolist() == [0, 1, 2]
        assert agent.act(x[0]).id == 3
        agent.reward(slate.ids, [1.0, 0.0, 0.0])

    def test_the_same_calls_give_the_same_decisions(self):
        def play() -> list:
            agent = Agent(mets(), seed=8)
            x, a, y = observations(30)
            seen = []
            for t in range(0, 30, 3):
                seen.append(agent.act(x[t]))
                agent.update(x[t + 1], a[t + 1], y[t + 1])
                seen += agent.act_many(x[t : t + 3])
                agent.reward(seen[-2].id, y[t])
            return seen

        assert play() == play()
        x = observations(30)[0]
        assert list(Agent(mets(), seed=1).act_many(x)) != list(Agent(mets(), seed=3).act_many(x))

    @pytest.mark.parametrize(
        "make", [LinTS, HierTS, LinUCB, UniformRandom], ids=lambda f: f.__name__
    )
    def test_any_policy(self, make):
        agent = Agent(make(world()), seed=1)
        x, a, y = observations(20)
        agent.update(x, a, y)
        decisions = agent.act_many(x)
        agent.reward(decisions.ids, y)
        agent.reward(agent.act(x[0], eligible=[2, 3]).id, 1.0)
        assert agent.counts["observations"] == 41
        assert agent.status().counts.get("rejected", 0) == 0

    @pytest.mark.slow
    def test_markov_chains(self):
        """A backend that keeps its observations: room is made as they come."""
        backend = Nuts(world(), chains=1, steps=1, warmup=5, max_depth=2, capacity=4)
        agent = Agent(ThompsonSampling(backend))
        for _ in range(9):
            agent.reward(agent.act(np.ones(D)).id, 1.0)
        assert int(agent.state().posterior.buffer.num_observations) == 9
        assert agent.status().counts["rejected"] == 0


class TestLearning:
    @pytest.mark.parametrize("route", ["one", "many", "by id", "by many ids"])
    def test_posterior_is_that_of_all_observations_in_any_order(self, x64, route):
        agent, backend = Agent(mets(), seed=1), ClosedForm(world())
        x, _, y = observations(40)
        decisions = agent.act_many(x)
        order = np.random.default_rng(2).permutation(40)
        if route == "one":
            for t in order:
                agent.update(x[t], int(decisions.indices[t]), y[t])
        elif route == "many":
            agent.update(x[order], decisions.indices[order], y[order])
        elif route == "by id":
            for t in order:
                agent.reward(int(decisions.ids[t]), y[t])
        else:
            agent.reward(decisions.ids[order[:13]], y[order[:13]])
            agent.reward(decisions.ids[order[13:]], y[order[13:]])
        state = backend.condition(backend.init(), x, decisions.indices, y)
        check_same_posterior(agent, backend.posterior(state))
        assert agent.counts["observations"] == 40

    @pytest.mark.slow
    @pytest.mark.parametrize("capacity", [32, 8], ids=["room", "no room"])
    def test_clicks(self, capacity):
        """Rewards that are kept, one at a time and many; where room runs out, more is made."""
        hierarchy = glm(weights(), D, reward=Bernoulli())
        backend = Laplace(hierarchy, capacity=32)
        agent = Agent(ThompsonSampling(Laplace(hierarchy, capacity=capacity)))
        x, a, _ = observations(30)
        clicks = np.random.default_rng(0).integers(0, 2, 30)
        state = backend.init()
        for t in range(30):
            state = backend.update(state, x[t], a[t], clicks[t])
        for t in range(10):
            agent.update(x[t], a[t], clicks[t])
        agent.update(x[10:], a[10:], clicks[10:])
        check_same_posterior(agent, backend.posterior(state))
        assert agent.status().counts["rejected"] == 0

    def test_clicks_are_zero_or_one(self):
        agent = Agent(ThompsonSampling(Laplace(glm(weights(), D, reward=Bernoulli()))))
        with pytest.raises(AgentError, match=r"reward is 0\.5, which Bernoulli rewards never are"):
            agent.update(np.ones(D), 0, 0.5)
        with pytest.raises(AgentError, match="reward is 2, which Bernoulli rewards never are"):
            agent.update(np.ones((2, D)), [0, 1], [1.0, 2.0])

    @pytest.mark.parametrize("every", [1, 3])
    @pytest.mark.parametrize(
        "backend",
        [ClosedForm, pytest.param(Factored, marks=pytest.mark.slow)],
        ids=["exact", "factored"],
    )
    def test_forgetting(self, x64, backend, every):
        """One at a time and many together: evidence is discounted before every `every`-th."""
        policy = ThompsonSampling(backend(world()))
        agent = Agent(policy, forget=0.9, forget_every=every)
        x, a, y = observations(20)
        state = policy.init(jax.random.key(0))
        for t in range(20):
            if t % every == 0:
                state = policy.forget(state, 0.9)
            state = policy.update(state, x[t], a[t], y[t])
        for t in range(7):
            agent.update(x[t], a[t], y[t])
        agent.update(x[7:], a[7:], y[7:])
        check_same_posterior(agent, policy.backend.posterior(state))

    def test_labels_of_the_hierarchy(self):
        level = Level("movie", K, parents={"genre": weights()}, labels=NAMES)
        hierarchy = Hierarchy([Level("genre", L), level], world().reward, D)
        agent = Agent(mets(hierarchy))
        assert agent.labels == NAMES
        decision = agent.act(np.ones(D))
        assert decision.action == NAMES[decision.index]
        agent.update(np.ones(D), "movie 3", 1.0)
        agent.update(np.ones((2, D)), ["movie 3", "movie 1"], [1.0, 0.5])
        assert agent.counts["observations"] == 3


class TestRefusals:
    def test_ids(self):
        agent = Agent(mets(), keep=4)
        first = agent.act(np.ones(D)).id
        agent.reward(first, 1.0)
        with pytest.raises(AlreadyRewarded, match="decision 0 was handed in already"):
            agent.reward(first, 1.0)
        with pytest.raises(UnknownDecision, match="no decision has the id 7; ids run from 0 to 0"):
            agent.reward(7, 1.0)
        agent.act_many(np.ones((4, D)))
        agent.act(np.ones(D))
        with pytest.raises(ExpiredDecision, match="decision 1 has expired: the newest 4 are kept"):
            agent.reward(1, 1.0)
        assert agent.counts == {
            "decisions": 6,
            "observations": 1,
            "expired": 1,
            "unknown": 1,
            "too_late": 1,
            "duplicate": 1,
            "refused": 0,
            "left_out": 0,
        }

    def test_many_rewards_are_taken_all_or_not_at_all(self):
        agent = Agent(mets())
        ids = agent.act_many(np.ones((4, D))).ids
        before = agent.state()
        bad = {
            "an unknown one": ([*ids, 99], np.ones(5), UnknownDecision),
            "one twice": ([*ids, ids[0]], np.ones(5), AlreadyRewarded),
            "NaN": (ids, [1.0, np.nan, 1.0, 1.0], AgentError),
            "one too few": (ids, np.ones(3), AgentError),
        }
        for given, rewards, error in bad.values():
            with pytest.raises(error):
                agent.reward(given, rewards)
        after = agent.state()
        jax.tree.map(np.testing.assert_array_equal, before.posterior, after.posterior)
        agent.reward(ids, np.ones(4))
        assert agent.counts["observations"] == 4
        assert agent.counts["refused"] == 2

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda a: a.act(np.ones(D + 1)), r"shape \(4,\); expected \(3,\), shared by all"),
            (lambda a: a.act([1.0, np.nan, 0.0]), "context: holds nan"),
            (lambda a: a.act("abc"), "expected numbers"),
            (lambda a: a.act(["1", "2", "3"]), r"got \['1', '2', '3'\]; expected numbers"),
            (lambda a: a.act([None, 1.0, 2.0]), "expected numbers"),
            (lambda a: a.act(np.array([1j, 1.0, 2.0])), "expected numbers"),
            (lambda a: a.act(np.zeros(D, "datetime64[s]")), "expected numbers"),
            (lambda a: a.act([10**400, 0, 0]), "holds a whole number too large"),
            (lambda a: a.act([1e200, 0, 0]), "holds (inf|1e.200)"),
            (lambda a: a.act_many(np.ones((0, D))), "one of them at least"),
            (lambda a: a.act_many(1.0), r"contexts have shape \(\); expected \(n, 3\)"),
            (
                lambda a: a.act(np.ones(D), eligible="movie 3"),
                "eligible is 'movie 3'; expected a l",
            ),
            (lambda a: a.act(np.ones(D), eligible=3), "eligible is 3; expected a list"),
            (
                lambda a: a.act(np.ones(D), eligible=[["movie 1"], [2, 3]]),
                "is no action .'movie 1'",
            ),
            (lambda a: a.act(np.ones(D), eligible=[True, 2]), "there is no action True"),
            (lambda a: a.act(np.ones(D), eligible=[]), "no action is eligible"),
            (lambda a: a.act(np.ones(D), eligible=["movie 33"]), "did you mean 'movie 3'"),
            (lambda a: a.act(np.ones(D), eligible=[True, False]), r"shape \(2,\); expected \(7,\)"),
            (lambda a: a.slate(np.ones(D), 8), "a slate of 8 is asked for; expected a .* 1 to 7"),
            (lambda a: a.slate(np.ones(D), 0), "a slate of 0 is asked for"),
            (lambda a: a.update(np.ones(D), "movi 4", 1.0), "there is no action 'movi 4'; did you"),
            (
                lambda a: a.update(np.ones(D), Position(12), 1.0),
                "no action number 12; numbers run from 0 to 6",
            ),
            (
                lambda a: a.update(np.ones(D), 2, 1.0),
                r"no action 2; .* at position 2 is 'movie 2', or Position\(2\)",
            ),
            (
                lambda a: a.update(np.ones(D), Position([2]), 1.0),
                "for one action; expected one whole number",
            ),
            (lambda a: a.update(np.ones(D), "movie 1", np.nan), "reward is nan, which Gaussian"),
            (lambda a: a.update(np.ones(D), "movie 1", 1e300), "1e.300, which Gaussian"),
            (lambda a: a.update(np.ones(D), "movie 1", "much"), "reward is 'much'"),
            (
                lambda a: a.update(np.ones(D), "movie 1", "0.7"),
                "reward is '0.7'; expected a number",
            ),
            (lambda a: a.update(np.ones(D), "movie 1", np.complex64(1)), "expected a number"),
            (lambda a: a.update(np.ones(D), "movie 1", 10**400), "reward is inf, which Gaussian"),
            (lambda a: a.update(np.ones((1, D)), ["movie 1"], ["0.7"]), "expected numbers"),
            (
                lambda a: a.update(np.ones((2, D)), Position([1, 2]), [1.0]),
                "got 2 contexts, 2 actions and 1",
            ),
            (lambda a: a.reward(1.5, 1.0), "got 1.5 for the id of a decision"),
            (lambda a: a.reward([[1]], [1.0]), r"ids have shape \(1, 1\)"),
            (lambda a: a.reward([0.5], [1.0]), "type float64"),
        ],
    )
    def test_what_does_not_fit(self, call, message):
        agent = Agent(mets(), labels=NAMES)
        before = agent.state()
        with as_a_user(), pytest.raises(AgentError, match=message):
            call(agent)
        after = agent.state()
        assert agent.counts["refused"] == 1
        assert after.decisions.made == 0
        jax.tree.map(np.testing.assert_array_equal, before.posterior, after.posterior)

    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (lambda: Agent(world()), TypeError, "expected a policy"),
            (
                lambda: Agent(mets(), labels=["a", "b"]),
                ValueError,
                "got 2 labels, 2 of them different",
            ),
            (lambda: Agent(mets(), labels=5), TypeError, "labels are 5; expected a sequence of 7"),
            (lambda: Agent(mets(), labels=[["a"]] * K), TypeError, "labels hold .'a'.; exp"),
            (
                lambda: Agent(mets(), labels=["a"] * K),
                ValueError,
                "got 7 labels, 1 of them different",
            ),
            (lambda: Agent(mets(), keep=0), ValueError, "Agent keep"),
            (lambda: Agent(mets(), propensity_draws=0), ValueError, "Agent propensity_draws"),
            (lambda: Agent(mets(), forget=1.5), ValueError, "Agent forget is 1.5"),
            (lambda: Agent(LinUCB(world()), forget=0.9), TypeError, "LinUCB cannot forget"),
        ],
    )
    def test_agents_that_cannot_be(self, make, error, message):
        with as_a_user(), pytest.raises(error, match=message):
            make()


def test_state_taken_out_and_put_back(precision):
    """The restored agent goes on exactly as the first one; the state is no window into it."""
    agent = Agent(mets(), seed=6, labels=NAMES, keep=50)
    x, _, y = observations(30)
    pending = agent.act_many(x)
    agent.reward(pending.ids[:10], y[:10])
    state = agent.state()
    agents = [agent, Agent.restore(state), Agent.restore(state)]
    paths = []
    for each in agents:
        each.reward(pending.ids[10:20], y[10:20])
        decisions = [each.act(context) for context in x]
        each.reward(int(pending.ids[25]), 2.0)
        paths.append((decisions, each.state()))
    for decisions, after in paths[1:]:
        assert decisions == paths[0][0]
        jax.tree.map(np.testing.assert_array_equal, after.posterior, paths[0][1].posterior)
        assert after.counts == paths[0][1].counts


def test_threads_lose_nothing():
    """Eight threads act, reward and look on at once: ids are distinct, and every reward counts."""
    agent, ids, errors = Agent(mets(), seed=1), [], []
    agent.reward(agent.act(np.ones(D)).id, 0.0)

    def serve(number: int) -> None:
        try:
            rng, waiting = np.random.default_rng(number), []
            for turn in range(60):
                waiting.append(agent.act(rng.normal(size=D)).id)
                if turn % 4 == 3:
                    for i in rng.permutation(waiting):
                        agent.reward(int(i), rng.normal())
                    ids.extend(waiting)
                    waiting = []
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(ids) == list(range(1, 481))
    state = agent.state()
    assert state.counts["observations"] == 481
    assert not state.decisions.waiting.any()
    log, backend = state.decisions, ClosedForm(world())
    assert int(state.posterior.info.observed) == 481
    np.testing.assert_allclose(
        posterior(agent).cov["action"],
        backend.posterior(
            backend.condition(backend.init(), log.contexts[:481], log.actions[:481], np.zeros(481))
        ).cov["action"],
        **tolerance(10),  # 481 rounding errors, in another order
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda agent: agent.reward([[1, 2], [3]], 1.0), "ids are"),
        (lambda agent: agent.update(np.ones(D), 0, [[1], [2, 3]]), "rewards are"),
        (lambda agent: agent.slate(np.ones(D), True), "a slate of True"),
        (
            lambda agent: agent.reward(np.array([2**64 - 1], np.uint64), [1.0]),
            "9223372036854775807",
        ),
    ],
)
def test_odd_shapes_are_refused_and_counted(call, said):
    agent = Agent(mets())
    before = sum(agent.counts.values())
    with pytest.raises(AgentError, match=said):
        call(agent)
    assert sum(agent.counts.values()) == before + 1
    assert len(agent.slate(np.ones(D), np.int64(2))) == 2


def test_settings_that_cannot_be():
    for name in ("keep", "propensity_draws", "forget_every"):
        with pytest.raises(ValueError, match=f"Agent {name}"):
            Agent(mets(), **{name: 10**20})
