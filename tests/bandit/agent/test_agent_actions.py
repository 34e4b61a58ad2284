"""Actions that come and go: newcomers know what their effects imply, and nobody else notices."""

import threading

import jax
import numpy as np
import pytest

from mistakes import as_a_user
from mixts.bandit import (
    GLMUCB,
    Agent,
    AgentError,
    HierTS,
    LinTS,
    LinUCB,
    ThompsonSampling,
    UniformRandom,
)
from mixts.bandit.policies.baselines import prior_moments
from mixts.inference import ClosedForm, Factored, Laplace, Nuts
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Sparse, glm, linear
from sampling import unoptimised
from tolerance import tolerance

K, L, D, NEW = 5, 3, 2, 4


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def sparse(rows: slice) -> Sparse:
    rng = np.random.default_rng(4)
    indices = np.stack([rng.permutation(L)[:2] for _ in range(K + NEW)])
    return Sparse(indices[rows], rng.normal(size=(K + NEW, 2))[rows], num_parents=L)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(K + NEW, *shape))


def covariances() -> np.ndarray:
    roots = 0.3 * numbers(D, D, seed=3)
    return roots @ np.swapaxes(roots, -1, -2) + np.eye(D)


# Weights for each parent, means and covariances of all actions, first and last.
FORMS = {
    "numbers": lambda rows: {"weights": {"effect": numbers(L)[rows]}},
    "matrices": lambda rows: {"weights": {"effect": numbers(L, D, D)[rows]}},
    "sparse": lambda rows: {"weights": {"effect": sparse(rows)}},
    "crossed": lambda rows: {
        "weights": {"effect": numbers(L)[rows], "studio": numbers(2, seed=1)[rows]}
    },
    "own means and covariances": lambda rows: {
        "weights": {"effect": numbers(L)[rows]},
        "mean": numbers(D, seed=2)[rows],
        "cov": covariances()[rows],
    },
    "no parents": lambda rows: {
        "weights": None,
        "mean": numbers(D, seed=2)[rows],
        "cov": covariances()[rows],
    },
}
QUICK = ("sparse", "own means and covariances")
forms = pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=[] if form in QUICK else pytest.mark.slow) for form in FORMS],
)
FIRST, LAST, ALL = slice(0, K), slice(K, K + NEW), slice(0, K + NEW)


def world(form: str, rows: slice, reward=Gaussian(0.5)) -> Hierarchy:
    given = dict(FORMS[form](rows))
    weights = given.pop("weights") or {}
    sizes = {"effect": L, "studio": 2}
    above = [Level(name, sizes[name], cov=2.0) for name in weights]
    own = Level("action", len(range(K + NEW)[rows]), parents=weights, **given)
    return Hierarchy([*above, own], reward, D)


def observations(n: int, actions: int, seed: int = 1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), rng.integers(0, actions, n), rng.normal(size=n)


def joined(*parts):
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def real(agent: Agent, posterior, level: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a level, without spare actions."""
    mean, cov = posterior.mean[level], posterior.cov[level]
    if level == "action":
        mean, cov = mean[: K + NEW], cov[: K + NEW]
    return np.asarray(mean), np.asarray(cov)


@forms
def test_newcomers_know_what_the_full_hierarchy_knows(x64, form):
    """Actions added midway, then rewards of all: the posterior of all observations, exactly."""
    agent = Agent(ThompsonSampling(ClosedForm(world(form, FIRST))))
    before, after = observations(30, K), observations(30, K + NEW, seed=2)
    agent.update(*before)
    assert agent.add_actions(**FORMS[form](LAST)) == list(range(K, K + NEW))
    backend = ClosedForm(world(form, ALL))
    known = backend.init()
    for seen in (before, after):
        known = backend.condition(known, *seen)
        state, expected = agent.state(), backend.posterior(known)
        ours = state.policy.backend.posterior(state.posterior)
        for level in expected.mean:
            mean, cov = real(agent, ours, level)
            np.testing.assert_allclose(mean, expected.mean[level], rtol=0, atol=1e-9)
            np.testing.assert_allclose(cov, expected.cov[level], rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours.log_evidence, expected.log_evidence, rtol=1e-9)
        agent.update(*after)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["numbers", "sparse"])
def test_factored(x64, form):
    agent = Agent(ThompsonSampling(Factored(world(form, FIRST))))
    before, after = observations(30, K), observations(30, K + NEW, seed=2)
    agent.update(*before)
    agent.add_actions(**FORMS[form](LAST))
    agent.update(*after)
    backend, state = Factored(world(form, ALL)), agent.state()
    expected = backend.posterior(backend.condition(backend.init(), *joined(before, after)))
    for level in expected.mean:
        mean, cov = real(agent, state.policy.backend.posterior(state.posterior), level)
        np.testing.assert_allclose(mean, expected.mean[level], rtol=0, atol=1e-9)
        np.testing.assert_allclose(cov, expected.cov[level], rtol=0, atol=1e-9)


@pytest.mark.slow
def test_clicks(x64):
    """Rewards that are kept stay with their actions."""
    clicks = np.random.default_rng(7).integers(0, 2, 40)
    x, _, _ = observations(40, K)
    actions = np.concatenate([np.arange(20) % K, np.arange(20) % (K + NEW)])
    agent = Agent(ThompsonSampling(Laplace(world("numbers", FIRST, Bernoulli()), capacity=64)))
    agent.update(x[:20], actions[:20], clicks[:20])
    agent.add_actions(**FORMS["numbers"](LAST))
    agent.update(x[20:], actions[20:], clicks[20:])
    backend = Laplace(world("numbers", ALL, Bernoulli()), capacity=64)
    state = backend.init()
    for row in zip(x, actions, clicks, strict=True):
        state = backend.update(state, *row)
    expected, now = backend.posterior(state), agent.state()
    for level in expected.mean:
        mean, cov = real(agent, now.policy.backend.posterior(now.posterior), level)
        np.testing.assert_allclose(mean, expected.mean[level], **tolerance())
        np.testing.assert_allclose(cov, expected.cov[level], **tolerance())


def everything(agent: Agent) -> list[np.ndarray]:
    state = agent.state()
    return [np.asarray(leaf) for leaf in jax.tree.leaves((state.policy, state.posterior))]


@pytest.mark.parametrize(
    "form", ["numbers", pytest.param("own means and covariances", marks=pytest.mark.slow)]
)
def test_the_others_do_not_notice(precision, form):
    """Neither what is known of them nor what they draw changes by a bit, whether room grows or not."""
    backend = ClosedForm(world(form, FIRST))
    agents = [Agent(ThompsonSampling(backend), seed=3) for _ in range(2)]
    seen = observations(30, K)
    for agent in agents:
        agent.update(*seen)
    for row in range(K, K + NEW):
        agents[1].add_actions(**FORMS[form](slice(row, row + 1)))
    alone, grown = everything(agents[0]), everything(agents[1])
    for before, after in zip(alone, grown, strict=True):
        kept = tuple(slice(0, size) for size in before.shape)
        np.testing.assert_array_equal(after[kept], before)
    x = np.random.default_rng(5).normal(size=(50, D))
    ours = agents[1].act_many(x, eligible=np.arange(K)).indices
    np.testing.assert_array_equal(ours, agents[0].act_many(x).indices)


def test_nothing_is_compiled_while_there_is_room():
    """Room for 5 actions becomes room for 10 with the sixth; the other rounds compile nothing.

    What is compiled in the background, for more room still, nobody waits for.
    """
    compiled: list[int] = []
    turn, caller = -1, threading.current_thread()

    def listen(event: str, duration: float, **_) -> None:
        is_ours = threading.current_thread() is caller
        if is_ours and event == "/jax/core/compile/backend_compile_duration":
            compiled.append(turn)

    def play() -> None:
        decision = agent.act(np.ones(3))
        agent.act_many(np.ones((3, 3)))
        agent.reward(decision.id, 0.5)
        agent.update(np.ones((2, 3)), [0, 1], [1.0, 2.0])

    rng = np.random.default_rng(0)
    # Sizes that no other test has, so that nothing is compiled already.
    hierarchy = linear(rng.normal(size=(5, 6)), 3)
    agent = Agent(ThompsonSampling(ClosedForm(hierarchy)))
    play()
    jax.monitoring.register_event_duration_secs_listener(listen)
    for turn in range(5):  # noqa: B007 (`listen` looks at it)
        agent.add_actions(rng.normal(size=(1, 6)))
        play()
    last, turn = turn, -1
    assert len(agent.labels) == 10
    assert set(compiled) == {0}
    assert last == 4


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(HierTS, marks=pytest.mark.slow),
        LinUCB,
        pytest.param(GLMUCB, marks=pytest.mark.slow),
        UniformRandom,
    ],
    ids=lambda make: make.__name__,
)
def test_baselines(make):
    hierarchy = world("numbers", FIRST, Gaussian(0.5))
    agent = Agent(make(hierarchy), seed=1)
    rows, seen = np.ones((NEW, 1)) if make is HierTS else numbers(L)[LAST], observations(20, K)
    agent.update(*seen)
    agent.add_actions(rows)
    agent.update(*observations(10, K + NEW))
    chosen = agent.act_many(np.random.default_rng(0).normal(size=(200, D))).indices
    assert chosen.max() >= K
    assert chosen.max() < K + NEW
    assert agent.status().counts.get("rejected", 0) == 0


def test_linear_sampling_starts_from_what_it_is_told(x64):
    """LinTS knows no effects: a newcomer has the prior that it is given, and learns as any other."""
    full = world("numbers", ALL)
    moments = prior_moments(full)
    agent = Agent(LinTS(world("numbers", FIRST)))
    agent.update(*observations(20, K))
    with pytest.raises(AgentError, match="has a mean of its own; pass mean= for new ones too"):
        agent.add_actions(labels=None)
    rows = moments.mean["action"][K:], moments.cov["action"][K:]
    agent.add_actions(mean=rows[0], cov=rows[1])
    agent.update(*observations(20, K + NEW, seed=3))
    policy = LinTS(full)
    state = policy.backend.condition(
        policy.backend.init(), *joined(observations(20, K), observations(20, K + NEW, seed=3))
    )
    now = agent.state()
    ours, expected = (
        now.policy.backend.posterior(now.posterior),
        policy.backend.posterior(state),
    )
    np.testing.assert_allclose(
        ours.mean["action"][: K + NEW], expected.mean["action"], rtol=0, atol=1e-9
    )


class TestGoing:
    names = ("alpha", "beta", "gamma", "delta", "epsilon")

    def agent(self) -> Agent:
        backend = ClosedForm(world("numbers", FIRST))
        return Agent(ThompsonSampling(backend), seed=2, labels=self.names)

    def test_removed_actions_are_never_chosen(self):
        agent = self.agent()
        agent.remove_actions(["beta", "delta"])
        assert agent.labels == ["alpha", "gamma", "epsilon"]
        chosen = agent.act_many(np.random.default_rng(0).normal(size=(300, D)))
        assert set(chosen.actions) == {"alpha", "gamma", "epsilon"}
        assert len(agent.probabilities(np.ones(D)).probability) == 3

    def test_their_late_rewards_still_teach(self, x64):
        agent, whole = self.agent(), self.agent()
        for each in (agent, whole):
            each.act(np.ones(D), eligible=["beta"])
        agent.remove_actions("beta")
        for each in (agent, whole):
            each.reward(0, 3.0)
            each.update(np.ones(D), "beta", 2.0)
        ours, theirs = agent.state().posterior, whole.state().posterior
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        assert int(ours.info.observed) == 2

    def test_rows_of_contexts_are_those_of_the_actions_there_are(self):
        """Added and removed: row i belongs to the i-th of `labels`, and so does mask i."""
        agent = self.agent()
        agent.add_actions(numbers(L)[K : K + 2], labels=["zeta", "eta"])
        agent.remove_actions("beta")
        rows = np.zeros((6, D))
        rows[4] = 1000.0
        mask = np.arange(6) == 4
        assert agent.labels[4] == "zeta"
        decision = agent.act(rows, eligible=mask)
        assert (decision.action, decision.index) == ("zeta", 5)
        np.testing.assert_array_equal(agent.state().decisions.contexts[decision.id], rows[4])
        many = agent.act_many(np.stack([rows, rows]), eligible=["zeta"])
        np.testing.assert_array_equal(agent.state().decisions.contexts[many.ids], rows[[4, 4]])

    def test_taken_out_and_put_back(self):
        """With spare places and removed actions: the same decisions, and room for the same newcomers."""
        agent = self.agent()
        agent.add_actions(numbers(L)[K : K + 2], labels=["zeta", "eta"])
        agent.remove_actions("beta")
        again = Agent.restore(agent.state())
        x = np.random.default_rng(3).normal(size=(40, D))
        assert again.labels == agent.labels
        assert list(again.act_many(x)) == list(agent.act_many(x))
        for each in (agent, again):
            each.add_actions(numbers(L)[K + 2 : K + 3], labels=["theta"])
            each.update(x, ["theta"] * 40, x[:, 0])
        assert list(again.act_many(x)) == list(agent.act_many(x))

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda a: a.remove_actions("betta"), "no action 'betta'; did you mean 'beta'"),
            (lambda a: a.remove_actions(["alpha", "alpha", *a.labels]), "leave one at least"),
            (lambda a: a.remove_actions("gamma") or a.remove_actions("gamma"), "removed already"),
            (
                lambda a: a.remove_actions("gamma") or a.act(np.ones(D), eligible=["gamma"]),
                "'gamma' was removed and cannot be eligible",
            ),
            (
                lambda a: a.remove_actions("beta") or a.update(np.ones((4, D)), "beta", 1.0),
                "'beta' was removed and has no row",
            ),
            (lambda a: a.add_actions(np.ones((1, L))), "labels are None; expected a seq"),
            (lambda a: a.add_actions(np.ones((1, L)), labels=["beta"]), "label 'beta' is taken"),
            (lambda a: a.add_actions(np.ones((2, L)), labels=["x", "x"]), "label 'x' is taken"),
            (lambda a: a.add_actions(np.ones((2, L)), labels=["x"]), "of 1 and 2 new actions"),
            (lambda a: a.add_actions(np.ones((1, L + 1)), labels=["x"]), r"\(1, 4\); expected"),
            (lambda a: a.add_actions({"genre": np.ones((1, L))}, labels=["x"]), "the actions have"),
            (lambda a: a.add_actions(np.full((1, L), np.nan), labels=["x"]), "holds nan"),
            (lambda a: a.add_actions(sparse(LAST), labels=["x"]), "expected an array"),
            (lambda a: a.add_actions(None, labels=["x"]), "expected a dict with weights for each"),
        ],
    )
    def test_what_does_not_fit(self, call, message):
        agent = self.agent()
        with as_a_user(), pytest.raises(AgentError, match=message):
            call(agent)
        assert agent.counts["refused"] == 1
        assert len(agent.state().is_open) == K

    def test_backends_that_cannot(self):
        clicks = glm(numbers(L)[FIRST], D, reward=Bernoulli())
        with pytest.raises(TypeError, match="Nuts cannot take in new actions while it runs"):
            ThompsonSampling(Nuts(clicks)).with_hierarchy(clicks)
        paper = Agent(ThompsonSampling(Laplace(clicks, sites="mle")))
        with pytest.raises(TypeError, match="Use sites='tilted'"):
            paper.add_actions(numbers(L)[LAST])
