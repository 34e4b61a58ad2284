"""How likely a decision was: estimates agree with what is decided, and with themselves."""

import numpy as np
import pytest

from mixts.bandit import Agent, LinUCB, ThompsonSampling, off_policy_value
from mixts.inference import ClosedForm
from mixts.models import Gaussian, Hierarchy, Level, linear
from sampling import unoptimised

K, D = 4, 2


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def policy() -> ThompsonSampling:
    weights = np.random.default_rng(0).uniform(-1, 1, (K, 2))
    return ThompsonSampling(ClosedForm(linear(weights, D, noise=0.5)))


def learned(**options) -> Agent:
    rng = np.random.default_rng(1)
    agent = Agent(policy(), seed=3, **options)
    agent.update(rng.normal(size=(20, D)), rng.integers(0, K, 20), rng.normal(size=20))
    return agent


def test_probabilities_are_shares_of_decisions():
    """Of n decisions in one context, each action has its share: both are binomial around the same."""
    agent, x, n = learned(), np.array([1.0, -0.5]), 4_000
    estimate = agent.probabilities(x, draws=n)
    np.testing.assert_allclose(estimate.probability.sum(), 1.0, rtol=1e-6)
    shares = np.bincount(agent.act_many(np.tile(x, (n, 1))).indices, minlength=K) / n
    # Five standard errors of a difference of two shares of n draws each.
    off = np.abs(shares - estimate.probability)
    assert (off <= 5 * np.sqrt(2) * estimate.standard_error).all()
    assert (estimate.probability > 0.02).sum() >= 3, "so that there is something to compare"


def test_known_probabilities():
    """Two actions with equal priors are even; one that is better by z standard deviations is known."""
    level = Level("action", 2, mean=np.array([[0.0], [1.0]]), cov=0.5)
    agent = Agent(ThompsonSampling(ClosedForm(Hierarchy([level], Gaussian(1.0), 1))))
    estimate = agent.probabilities([1.0], draws=10_000)
    expected = 0.158655  # that a normal number with mean and variance one is negative
    assert abs(estimate.probability[0] - expected) < 5 * estimate.standard_error[0]
    np.testing.assert_allclose(
        estimate.standard_error, np.sqrt(expected * (1 - expected) / 10_000), rtol=0.05
    )


def test_ask_twice_and_get_the_same():
    """Nothing changes by asking; and the next decision logs what was answered."""
    agent, other, x = learned(propensity_draws=256), learned(), np.ones(D)
    before = agent.probabilities(x, draws=256)
    np.testing.assert_array_equal(agent.probabilities(x, draws=256).probability, before.probability)
    decision = agent.act(x)
    assert decision.index == other.act(x).index, "logging does not change decisions"
    assert decision.probability is not None
    chosen = round(before.probability[decision.index] * 256)
    assert decision.probability == pytest.approx((chosen + 1) / 257)


def test_logged_probabilities():
    """One at a time, many at once and in slates: of every choice, and never zero."""
    draws = 7
    agent, alone = learned(propensity_draws=draws), learned(propensity_draws=draws)
    x = np.random.default_rng(2).normal(size=(6, D))
    many = agent.act_many(x)
    assert list(many) == [alone.act(context) for context in x]
    assert many.probabilities is not None
    assert (many.probabilities >= 1 / (draws + 1)).all()
    assert (many.probabilities <= 1).all()
    slate = agent.slate(x[0], 3)
    assert slate.probabilities is not None
    assert ((slate.probabilities > 0) & (slate.probabilities <= 1)).all()


def test_eligible_actions_share_all_probability():
    estimate = learned().probabilities(np.ones(D), draws=500, eligible=[1, 2])
    assert estimate.probability[[0, 3]].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(estimate.probability.sum(), 1.0, rtol=1e-6)
    assert (estimate.standard_error > 0).all()


def test_a_policy_that_draws_nothing():
    """Upper confidence bounds choose one action for certain."""
    hierarchy = linear(np.random.default_rng(0).uniform(-1, 1, (K, 2)), D)
    agent = Agent(LinUCB(hierarchy), propensity_draws=10)
    agent.update(np.ones((2, D)), [1, 2], [1.0, 3.0])
    decision = agent.act(np.ones(D))
    probability = agent.probabilities(np.ones(D), draws=20).probability
    assert decision.probability == 1.0
    assert probability[decision.index] == 1.0
    assert probability.sum() == 1.0


def test_inverse_propensities_estimate_another_policys_value():
    """A log of decisions, rewards and probabilities says what uniform choice would have earned."""
    rng, n, draws = np.random.default_rng(5), 2_000, 200
    truth = rng.normal(size=(K, D))
    agent = learned(propensity_draws=draws)
    x = rng.normal(size=(n, D))
    many = agent.act_many(x)
    agent.reward(many.ids, np.sum(x * truth[many.indices], axis=1))
    found = off_policy_value(agent.log(), np.full((n, K), 1 / K)).ips
    # The value of a uniform choice in these contexts; five standard errors of the weighted mean.
    assert abs(found.value - np.mean(x @ truth.T)) < 5 * found.standard_error
    assert found.standard_error < 0.2, "the log is informative"


def test_the_log_holds_what_was_rewarded(tmp_path):
    """Whatever comes late or never; and after a file, or another process, it holds the same."""
    rng = np.random.default_rng(6)
    with Agent.open(tmp_path / "folder", policy(), propensity_draws=9, keep=12) as agent:
        one, many = agent.act(np.ones(D)), agent.act_many(rng.normal(size=(11, D)))
        late = agent.act([0.5, 2.0])  # the first decision, which was never rewarded, has expired
        agent.reward(late.id, 0.25)
        agent.reward(many.ids[[4, 2]], [4.0, 2.0])
        log = agent.log()
        agent.save(tmp_path / "file")
    assert one.id == 0
    assert log.ids.tolist() == [3, 5, 12]
    assert log.rewards.tolist() == [2.0, 4.0, 0.25]
    assert log.actions.tolist() == [many.indices[2], many.indices[4], late.index]
    assert many.probabilities is not None
    assert log.propensities.tolist() == [*many.probabilities[[2, 4]], late.probability]
    np.testing.assert_array_equal(log.contexts[2], [0.5, 2.0])
    with Agent.open(tmp_path / "folder") as again:
        for other in (again.log(), Agent.load(tmp_path / "file").log()):
            for column, found in zip(log, other, strict=True):
                np.testing.assert_array_equal(column, found)


@pytest.mark.parametrize(
    "decide",
    [
        lambda agent: [agent.act(np.ones(D), eligible=[1, 2])],
        lambda agent: [agent.act(np.ones((K, D)))],
        lambda agent: agent.act_many(np.ones((2, D)), eligible=[0, 1, 3]),
        lambda agent: agent.act_many(np.ones((2, K, D))),
        lambda agent: agent.slate(np.ones(D), 2),
    ],
)
def test_a_log_that_cannot_tell_what_there_was_to_choose_from(decide):
    """Then it has no contexts, from which another policy's choices would be wrong."""
    agent = learned(propensity_draws=9)
    agent.reward(agent.act(np.ones(D)).id, 1.0)
    assert agent.log().contexts is not None
    decisions = list(decide(agent))
    assert agent.log().contexts is not None, "it is not rewarded yet"
    agent.reward([decision.id for decision in decisions], np.ones(len(decisions)))
    log = agent.log()
    assert log.contexts is None
    assert log.ids.tolist() == list(range(1 + len(decisions)))
    assert log.propensities[1:].tolist() == [decision.probability for decision in decisions]


def test_a_log_without_probabilities():
    agent = learned()
    agent.reward(agent.act(np.ones(D)).id, 1.0)
    log = agent.log()
    assert log.propensities is None
    with pytest.raises(ValueError, match=r"no propensities.*propensity_draws"):
        off_policy_value(log, [0.5])


def test_probabilities_need_a_count():
    with pytest.raises(ValueError, match="probabilities draws"):
        learned().probabilities(np.ones(D), draws=0)
