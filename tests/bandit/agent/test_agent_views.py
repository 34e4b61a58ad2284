"""What an agent shows of itself: the actions there are under their labels, and nothing besides."""

import jax
import numpy as np
import pandas as pd
import pytest

from mixts.bandit import Agent, AgentError, LinUCB, ThompsonSampling
from mixts.bandit.agent.views import expected_rewards
from mixts.inference import ClosedForm
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level
from sampling import unoptimised
from tolerance import tolerance

WEIGHTS = np.eye(2)[[0, 1, 0]]
COMPONENTS = ["one", "age"]


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def world(labels=("x", "y", "z"), weights=WEIGHTS) -> Hierarchy:
    own = Level("m", len(weights), parents={"g": weights}, labels=labels)
    return Hierarchy([Level("g", 2, labels=["a", "b"]), own], Gaussian(1.0), 2, COMPONENTS)


def observations(n: int, labels: str) -> tuple:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)), list(rng.choice(list(labels), n)), rng.normal(size=n)


@pytest.fixture(scope="module")
def agent() -> Agent:
    agent = Agent(ThompsonSampling(ClosedForm(world())))
    agent.update(*observations(12, "xyz"))
    agent.add_actions([[1.0, 0.0]], labels=["new"])
    agent.update(*observations(4, "x"))
    return agent


def test_spare_actions_are_not_seen(agent):
    """The posterior of four actions, as if they had been declared, under their labels."""
    labels = ("x", "y", "z", "new")
    whole = ClosedForm(world(labels, np.vstack([WEIGHTS, [[1.0, 0.0]]])))
    seen = zip(observations(12, "xyz"), observations(4, "x"), strict=True)
    contexts, actions, rewards = (np.concatenate(column) for column in seen)
    rows = [labels.index(action) for action in actions]
    expected = whole.posterior(whole.condition(whole.init(), contexts, rows, rewards))
    found = agent.posterior()
    assert found.backend.hierarchy["m"].labels == agent.policy.problem["m"].labels == labels
    assert agent.state().policy.problem.num_actions > 4  # there is room for more
    for level in ("g", "m"):
        np.testing.assert_allclose(found.mean[level], expected.mean[level], **tolerance())
        np.testing.assert_allclose(found.cov[level], expected.cov[level], **tolerance())
    drawn = found.to_arviz(jax.random.key(0), n=5)["posterior"]
    assert drawn["m"].shape == (1, 5, 4, 2)
    assert drawn["m_id"].values.tolist() == list(labels)
    assert drawn["g_id"].values.tolist() == ["a", "b"]
    assert drawn["component"].values.tolist() == COMPONENTS


def test_labels_of_the_agent_are_those_of_its_policy():
    """Also where the hierarchy has none, or others, and for labels that are no strings."""
    labels = [("x", 1), 2, None]
    agent = Agent(ThompsonSampling(ClosedForm(world(labels=None))), labels=labels)
    assert agent.policy.problem["m"].labels == tuple(labels)
    assert agent.posterior().backend.hierarchy["m"].coordinates.tolist() == labels
    plain = Agent(ThompsonSampling(ClosedForm(world(labels=None))))
    assert plain.posterior().backend.hierarchy["m"].labels is None
    assert plain.summary([1.0, 0.0], draws=2).index.tolist() == [0, 1, 2]
    assert agent.summary([1.0, 0.0], draws=2).index.tolist() == labels


def test_the_summary(agent):
    found = agent.summary([1.0, 0.5], draws=200)
    known = agent.posterior()
    x, mean, cov = np.array([1.0, 0.5]), known.mean["m"], known.cov["m"]
    assert found.columns.tolist() == ["mean", "sd", "rewards", "best"]
    assert found.index.tolist() == ["x", "y", "z", "new"]
    np.testing.assert_allclose(found["mean"], mean @ x, **tolerance())
    np.testing.assert_allclose(found["sd"], np.sqrt(x @ cov @ x), **tolerance())
    seen = observations(12, "xyz")[1] + observations(4, "x")[1]
    assert found["rewards"].tolist() == [seen.count(a) for a in found.index]
    assert found["best"].sum() == pytest.approx(1)
    pd.testing.assert_frame_equal(found, agent.summary({"age": 0.5, "one": 1.0}, draws=200))
    everywhere = np.concatenate([observations(12, "xyz")[0], observations(4, "x")[0]]).mean(0)
    pd.testing.assert_frame_equal(agent.summary(draws=5), agent.summary(everywhere, draws=5))


def test_removed_actions_are_known_but_not_compared(agent):
    agent.remove_actions("y")
    assert agent.summary([1.0, 0.5], draws=5).index.tolist() == ["x", "z", "new"]
    assert agent.posterior().mean["m"].shape == (4, 2)
    agent.reopen_actions("y")
    assert agent.labels == ["x", "y", "z", "new"]


@pytest.mark.parametrize(
    ("reward", "mean"),
    [(Gaussian(2.0), lambda u: u), (Bernoulli(), lambda u: 1 / (1 + np.exp(-u)))],
)
def test_expected_rewards(reward, mean):
    """On the scale of rewards: of clicks it is the probability of one."""
    center, cov = np.array([[1.0, -1.0]]), np.array([[[1.0, 0.3], [0.3, 0.5]]])
    found = expected_rewards(reward, np.array([1.0, 2.0]), center, cov)
    u = np.random.default_rng(0).normal(-1.0, np.sqrt(1 + 4 * 0.3 + 4 * 0.5), 400_000)
    np.testing.assert_allclose(found[0], mean(u).mean(), atol=5 * mean(u).std() / np.sqrt(len(u)))
    np.testing.assert_allclose(found[1], mean(u).std(), rtol=0.01)


def test_what_cannot_be_shown():
    agent = Agent(LinUCB(world()))
    with pytest.raises(TypeError, match="LinUCB has no posterior"):
        agent.posterior()
    with pytest.raises(AgentError, match="no observations yet whose mean context could be used"):
        Agent(ThompsonSampling(ClosedForm(world()))).summary()


@pytest.mark.parametrize(
    "given",
    [
        pd.Series({"age": 2.0, "one": 1.0}),
        {"age": 2.0, "one": 1.0},
        pd.DataFrame({"age": [2.0] * 4, "one": [1.0] * 4}, index=["new", "z", "y", "x"]),
        pd.Series([1.0, 2.0]),
        [1.0, 2.0],
    ],
    ids=["series", "dict", "table", "no names", "list"],
)
def test_contexts_are_matched_by_name(agent, given):
    decision = agent.act(given)
    assert agent.state().decisions.contexts[decision.id].tolist() == [1.0, 2.0]


def test_rows_are_matched_by_name(agent):
    rows = pd.DataFrame([[1, 2], [3, 4], [5, 7], [8, 9]], ["new", "x", "z", "y"])
    rows.columns = ["age", "one"]
    decision = agent.act(rows, eligible=["z"])
    assert agent.state().decisions.contexts[decision.id].tolist() == [7.0, 5.0]
    with pytest.raises(AgentError, match="expected a row for each action of `labels`"):
        agent.act(rows.iloc[[0, 1, 2, 2]])


def test_many_contexts_are_matched_by_name(agent):
    table = pd.DataFrame({"age": [2.0, 4.0], "one": [1.0, 3.0]}, index=["u", "v"])
    for given in (table, table.to_dict("records"), [row for _, row in table.iterrows()]):
        ids = agent.act_many(given).ids
        assert agent.state().decisions.contexts[ids].tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pd.Series({"age": 2.0, "two": 1.0}), "'one' missing and 'two' unknown"),
        ({"age": 2.0}, "'one' missing"),
        ({"age": 2.0, "one": 1.0, "id": 7.0}, "'id' unknown"),
        (pd.Series([1.0, 2.0], index=["age", "age"]), "'one' missing"),
        (pd.Series([1.0, 2.0], index=[1, 0]), "named 1, 0; expected 'one', 'age'"),
    ],
)
def test_other_names_are_refused(agent, given, message):
    with pytest.raises(AgentError, match=message):
        agent.act(given)


def test_names_are_refused_where_none_are_declared():
    agent = Agent(ThompsonSampling(ClosedForm(world().remade(components=None))))
    for call, given in (
        (agent.act, pd.Series({"age": 2.0, "one": 1.0})),
        (agent.act, {"age": 2.0, "one": 1.0}),
        (agent.act_many, pd.DataFrame({"age": [2.0], "one": [1.0]})),
    ):
        with pytest.raises(AgentError, match=r"declare Hierarchy.*components"):
            call(given)
