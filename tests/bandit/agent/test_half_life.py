"""Evidence with a half-life: discounted by the clock, recorded, and the same after a restart."""

import jax
import numpy as np
import pytest

from agents import assert_same_agent
from mistakes import as_a_user
from mixts.bandit import Agent, LinUCB, ThompsonSampling
from mixts.bandit.agent.evidence_clock import EvidenceClock, in_steps
from mixts.inference import ClosedForm, ExpectationPropagation, Factored
from mixts.models import glm, linear
from sampling import unoptimised
from tolerance import tolerance

WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (4, 2))
D, HALF_LIFE = 2, 100.0


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


class Time:
    """A clock that is moved by hand."""

    def __init__(self, now: float = 1_000_000.0):
        self.now = now

    def __call__(self) -> float:
        return self.now


def exact() -> ThompsonSampling:
    return ThompsonSampling(ClosedForm(linear(WEIGHTS, D)))


def clicks() -> ThompsonSampling:
    return ThompsonSampling(ExpectationPropagation(glm(WEIGHTS, D)))


def factored() -> ThompsonSampling:
    return ThompsonSampling(Factored(linear(WEIGHTS, D)))


def observations(n: int) -> list[tuple[np.ndarray, int, float]]:
    rng = np.random.default_rng(1)
    return [(rng.normal(size=D), int(rng.integers(4)), float(rng.integers(2))) for _ in range(n)]


def check_knows(agent: Agent, policy: ThompsonSampling, state) -> None:
    found, expected = agent.posterior(), policy.posterior(state)
    for name in expected.mean:
        np.testing.assert_allclose(found.mean[name], expected.mean[name], **tolerance())
        np.testing.assert_allclose(found.cov[name], expected.cov[name], **tolerance())


@pytest.mark.parametrize("made", [exact, clicks, factored])
def test_all_evidence_counts_half_after_a_half_life(x64, made):
    """The factor is that of the time that has passed, not of the number of calls."""
    policy, time, rng = made(), Time(), np.random.default_rng(2)
    agent = Agent(policy, half_life=HALF_LIFE, clock=time)
    state, last = policy.init(jax.random.key(0)), time.now
    for x, action, reward in observations(12):
        time.now += float(rng.uniform(1, 90))
        if rng.random() < 0.5:
            agent.act(x)
            state, last = policy.forget(state, 0.5 ** ((time.now - last) / HALF_LIFE)), time.now
            time.now += 0.4  # less than a hundredth: no discount
        else:
            state, last = policy.forget(state, 0.5 ** ((time.now - last) / HALF_LIFE)), time.now
        agent.update(x, action, reward)
        state = policy.update(state, x, action, reward)
    check_knows(agent, policy, state)
    time.now = last + 3 * HALF_LIFE
    check_knows(agent, policy, policy.forget(state, 1 / 8))  # asked, without a change


def test_weights_are_exact_but_for_the_granularity(x64):
    """The posterior of rewards whose noise has grown with their age, to a hundredth of a half-life."""
    policy, time = exact(), Time()
    agent = Agent(policy, half_life=HALF_LIFE, clock=time)
    seen, ages = observations(30), []
    for x, action, reward in seen:
        time.now += 2.5
        agent.update(x, action, reward)
        ages.append(time.now)
    time.now += 40.0
    weights = 0.5 ** ((time.now - np.array(ages)) / HALF_LIFE)
    x, a, y = (np.array(part) for part in zip(*seen, strict=True))
    state = policy.condition(policy.init(jax.random.key(0)), x, a, y, weights)
    check_knows(agent, policy, state)


def test_no_time_is_lost_between_calls_that_come_often(x64):
    """A thousand decisions in a half-life, each less than a hundredth of it after the last."""
    policy, time = exact(), Time()
    agent = Agent(policy, half_life=HALF_LIFE, clock=time)
    x, action, reward = observations(1)[0]
    agent.update(x, action, reward)
    start, made = time.now, 0
    for step in range(1000):
        before = agent.engine.packed_state
        time.now = start + (step + 1) * HALF_LIFE / 1000
        agent.act(x)
        made += agent.engine.packed_state is not before
    assert 90 <= made <= 100
    state = policy.update(policy.init(jax.random.key(0)), x, action, reward)
    left = 0.5 ** ((agent.clock.until - start) / HALF_LIFE)
    assert 0.5 <= left < 0.5 * 2**0.011
    check_knows(agent, policy, policy.forget(state, left))


@pytest.mark.parametrize("precision_of", ["float32", "float64"])
def test_a_long_time_leaves_the_prior(request, precision_of):
    """Far more half-lives than any number has digits, of a posterior far narrower than the prior."""
    if precision_of == "float64":
        request.getfixturevalue("x64")
    policy = ThompsonSampling(ClosedForm(linear(WEIGHTS, D, action_cov=100.0, noise=0.01)))
    time = Time()
    agent = Agent(policy, half_life=1e-3, clock=time)
    x, a, y = (np.array(part) for part in zip(*observations(200), strict=True))
    agent.update(x, a, y)
    narrow = float(agent.posterior().cov["action"].max())
    time.now += 1e9
    agent.act(x[0])
    prior = policy.posterior(policy.init(jax.random.key(0)))
    assert narrow < 1e-3 < float(prior.cov["action"].min() + 1)
    for name, cov in prior.cov.items():
        np.testing.assert_allclose(agent.posterior().cov[name], cov, rtol=1e-3, atol=1e-3)
    assert agent.status().ok


def test_a_clock_that_is_set_back_takes_nothing_back(x64):
    policy, time = exact(), Time()
    agent = Agent(policy, half_life=HALF_LIFE, clock=time)
    x, action, reward = observations(1)[0]
    agent.update(x, action, reward)
    time.now += HALF_LIFE
    agent.act(x)
    time.now -= 50 * HALF_LIFE
    agent.act(x)
    state = policy.update(policy.init(jax.random.key(0)), x, action, reward)
    check_knows(agent, policy, policy.forget(state, 0.5))
    time.now += HALF_LIFE  # counts from where it was set back to
    agent.act(x)
    check_knows(agent, policy, policy.forget(state, 0.25))


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
def test_a_clock_that_says_no_time_changes_nothing(broken):
    time = Time()
    agent = Agent(exact(), half_life=HALF_LIFE, clock=time)
    time.now = broken
    before = agent.engine.packed_state
    agent.act(np.ones(D))
    assert agent.engine.packed_state is before


@pytest.mark.parametrize("made", [exact, clicks])
@pytest.mark.parametrize("snapshot", [False, True])
def test_the_same_after_a_restart(tmp_path, made, snapshot):
    """Bit for bit: discounts are in the journal, and time that passes meanwhile counts."""
    time, twin_time = Time(), Time()
    options = {"half_life": HALF_LIFE, "propensity_draws": 2}
    twin = Agent(made(), 3, clock=twin_time, **options)
    seen = observations(15)

    def live(agent, clock, rows):
        for i, (x, action, reward) in enumerate(rows):
            clock.now += 7.0 * (i % 3)
            decision = agent.act(x)
            agent.update(x, action, reward)
            if i % 2:
                agent.reward(decision.id, reward)

    with Agent.open(tmp_path / "a", made(), 3, clock=time, **options) as agent:
        live(agent, time, seen[:6])
        if snapshot:
            agent.snapshot()
        live(agent, time, seen[6:10])
    live(twin, twin_time, seen[:6])
    if snapshot:
        twin.state()
    live(twin, twin_time, seen[6:10])
    time.now += 33.0
    twin_time.now += 33.0
    with Agent.open(tmp_path / "a", made(), 3, clock=time, **options) as agent:
        assert agent.clock.until == twin.clock.until
        live(agent, time, seen[10:])
        live(twin, twin_time, seen[10:])
        assert_same_agent(agent, twin)


def test_saved_and_loaded(tmp_path):
    time = Time()
    agent = Agent(exact(), half_life=HALF_LIFE, clock=time)
    agent.update(*observations(1)[0])
    agent.save(tmp_path / "agent")
    time.now += 20.0
    again = Agent.load(tmp_path / "agent", clock=time)
    agent.act(np.ones(D))
    again.act(np.ones(D))
    assert again.clock.until == time.now
    assert_same_agent(again, agent)


def test_a_closed_agent_can_still_be_asked(tmp_path):
    time = Time()
    with Agent.open(tmp_path / "a", exact(), half_life=HALF_LIFE, clock=time) as agent:
        agent.update(*observations(1)[0])
    before = agent.engine.packed_state
    time.now += 20 * HALF_LIFE
    assert agent.summary(np.ones(D), draws=10).shape == (4, 4)
    prior = exact().posterior(exact().init(jax.random.key(0)))
    np.testing.assert_allclose(agent.posterior().cov["action"], prior.cov["action"], atol=1e-4)
    assert agent.engine.packed_state is before


def test_moved_to_another_policy(x64):
    """Observations are learned again with the time that had passed between them."""
    time = Time()
    agent = Agent(exact(), half_life=HALF_LIFE, clock=time)
    wider = ThompsonSampling(ClosedForm(linear(WEIGHTS, D, action_cov=3.0)))
    expected = Agent(wider, half_life=HALF_LIFE, clock=time)
    for x, action, reward in observations(6):
        time.now += 30.0
        for each in (agent, expected):
            each.update(x, action, reward)
            each.update(np.stack([x, -x]), [action, 0], [reward, 1.0])
    time.now += 50.0
    agent.act(x)
    agent.migrate(wider)
    found, wanted = agent.posterior(), expected.posterior()
    for name in found.mean:
        np.testing.assert_allclose(found.mean[name], wanted.mean[name], **tolerance())
        np.testing.assert_allclose(found.cov[name], wanted.cov[name], **tolerance())
    assert agent.clock.until == time.now
    agent.migrate(exact())  # a second time, from the moments that the first has kept
    assert agent.counts["observations"] == 18


def test_moved_before_anything_was_observed():
    agent = Agent(exact(), half_life=HALF_LIFE, clock=Time())
    agent.migrate(exact())
    assert agent.counts["observations"] == 0


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"half_life": 0}, ValueError, "half_life is 0; expected a positive number of seconds"),
        ({"half_life": float("inf")}, ValueError, "half_life is inf"),
        ({"half_life": True}, ValueError, "half_life is True"),
        ({"half_life": "1 day"}, ValueError, "half_life is '1 day'"),
        (
            {"half_life": 5, "forget": 0.9},
            ValueError,
            r"forget is 0.9 and half_life is 5; expected one",
        ),
        ({"half_life": 5, "clock": 3.0}, TypeError, r"clock is 3.0; expected a function"),
    ],
)
def test_what_is_refused(options, kind, said):
    with as_a_user(), pytest.raises(kind, match=said):
        Agent(exact(), **options)


def test_a_policy_that_cannot_forget_is_refused():
    with pytest.raises(TypeError, match="LinUCB cannot forget"):
        Agent(LinUCB(linear(WEIGHTS, D)), half_life=5.0)


def test_another_half_life_is_refused(tmp_path):
    Agent.open(tmp_path / "a", exact(), half_life=5.0).close()
    with pytest.raises(ValueError, match=r"was made with half_life=5\.0, not 6"):
        Agent.open(tmp_path / "a", exact(), half_life=6.0)


def test_without_a_half_life_the_clock_is_not_asked():
    def never() -> float:
        raise AssertionError("asked for the time")

    agent = Agent(exact(), clock=never)
    agent.act(np.ones(D))
    assert agent.state().discounted_until is None


def test_small_factors_are_taken_in_steps():
    for factor in (0.9, 2.0**-8, 2.0**-9, 2.0**-256):
        each, steps = in_steps(factor)
        assert each >= 2.0**-8 * (1 - 1e-12)
        np.testing.assert_allclose(steps * np.log2(each), np.log2(factor))
    assert EvidenceClock(1.0, 0.0, lambda: 1e6).due().factor == 2.0**-256
