"""Off-policy estimates against the truth of problems where it is known, over many logs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistakes import as_a_user
from mixts.bandit import (
    LinUCB,
    LoggedDecisions,
    ThompsonSampling,
    UniformRandom,
    choice_probabilities,
    off_policy_value,
)
from mixts.inference import ClosedForm
from mixts.models import linear

K, N, LOGS = 4, 50, 2000


def world(seed=0):
    """Contexts of one decision each, mean rewards, and two policies, as (N, K) tables."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(N, K))
    logging, other = (rng.dirichlet(np.ones(K) * shape, N) for shape in (3.0, 1.0))
    logging = 0.8 * logging + 0.2 / K  # every action has some chance
    return means, logging, other


def logs(means, logging, seed=1):
    """Logs of the logging policy, all of the same contexts."""
    rng = np.random.default_rng(seed)
    for _ in range(LOGS):
        uniform = rng.random((N, 1))
        actions = np.minimum((logging.cumsum(1) < uniform).sum(1), K - 1)
        here = np.arange(N), actions
        rewards = means[here] + rng.normal(size=N)
        yield LoggedDecisions(None, actions, rewards, logging[here])


def estimates(means, logging, other, predictions):
    found = [off_policy_value(log, other, predictions=predictions) for log in logs(means, logging)]
    return {
        name: np.array([getattr(one, name)[:2] for one in found])
        for name in ("ips", "snips", "doubly_robust")
    }


def test_unbiased_with_honest_standard_errors():
    means, logging, other = world()
    truth = (other * means).sum(1).mean()
    bad = np.random.default_rng(2).normal(size=(N, K)) * 3 + 5
    for name, found in estimates(means, logging, other, bad).items():
        values, errors = found.T
        spread = values.std(ddof=1)
        # Four standard errors of the mean over logs; self-normalised, a bias of order 1 / N is allowed.
        allowed = 4 * spread / np.sqrt(LOGS) + (2 * spread**2 if name == "snips" else 0.0)
        assert abs(values.mean() - truth) < allowed, name
        # The errors also hold the spread between contexts, which here is the same in every log.
        assert np.sqrt(np.mean(errors**2)) > 0.9 * spread, name


def test_propensities_that_an_agent_has_estimated():
    """Counted from N further draws, the decision itself included, they leave the weights unbiased."""
    means, logging, other = world()
    truth = (other * means).sum(1).mean()
    rng, draws, values = np.random.default_rng(6), 200, []
    # An action of probability p is missed altogether with probability (1 - p)^(N + 1).
    assert (1 - logging.min()) ** (draws + 1) < 1e-4
    for log in logs(means, logging):
        estimated = (rng.binomial(draws, log.propensities) + 1) / (draws + 1)
        values.append(off_policy_value(log._replace(propensities=estimated), other).ips.value)
    assert abs(np.mean(values) - truth) < 4 * np.std(values, ddof=1) / np.sqrt(LOGS)


def test_standard_errors_cover_where_contexts_are_drawn_too():
    """With a context for every decision, nine in ten intervals of 1.645 errors hold the truth."""
    rng = np.random.default_rng(3)
    inside = {"ips": 0, "snips": 0, "doubly_robust": 0}
    runs, n = 1000, 400
    for _ in range(runs):
        level = rng.normal(size=n)
        means = np.stack([level, -level, 1 + 0 * level], 1)
        taken = rng.integers(0, 3, n)
        rewards = means[np.arange(n), taken] + rng.normal(size=n)
        other = np.stack([level > 0, level <= 0, np.zeros(n)], 1) * 0.8
        other[:, 2] = 0.2
        truth = 0.8 * np.sqrt(2 / np.pi) + 0.2  # E |x| = sqrt(2 / pi)
        log = LoggedDecisions(None, taken, rewards, np.full(n, 1 / 3))
        found = off_policy_value(log, other, predictions=means + rng.normal(size=(n, 3)))
        for name in inside:
            one = getattr(found, name)
            inside[name] += abs(one.value - truth) < 1.645 * one.standard_error
    for name, count in inside.items():
        # Four standard deviations of a binomial share, and 0.01 for the normal approximation.
        assert abs(count / runs - 0.9) < 4 * np.sqrt(0.09 / runs) + 0.01, name


def test_doubly_robust_varies_less_with_a_good_model():
    means, logging, other = world()
    good = means + 0.1 * np.random.default_rng(4).normal(size=(N, K))
    found = estimates(means, logging, other, good)
    assert found["doubly_robust"][:, 0].var() < 0.7 * found["ips"][:, 0].var()
    truth = (other * means).sum(1).mean()
    values = found["doubly_robust"][:, 0]
    assert abs(values.mean() - truth) < 4 * values.std(ddof=1) / np.sqrt(LOGS)


def one_log(seed=5):
    means, logging, other = world(seed)
    return next(logs(means, logging, seed)), other, means


def test_self_normalised_follows_a_shift_of_rewards():
    log, other, _ = one_log()
    before = off_policy_value(log, other)
    after = off_policy_value(log._replace(rewards=log.rewards + 100.0), other)
    np.testing.assert_allclose(after.snips.value, before.snips.value + 100.0, rtol=1e-12)
    np.testing.assert_allclose(after.snips.standard_error, before.snips.standard_error, rtol=1e-9)
    assert abs(after.ips.value - before.ips.value - 100.0) > 1.0


def test_the_logging_policy_itself_gets_the_mean_reward():
    log, _, _ = one_log()
    found = off_policy_value(log, np.asarray(log.propensities))
    np.testing.assert_allclose(found.ips, [log.rewards.mean(), log.rewards.std(ddof=1) / N**0.5])
    np.testing.assert_allclose(found.snips, found.ips)
    assert found.effective_sample_size == pytest.approx(N)
    assert found.doubly_robust is None


def test_certain_actions_may_be_named():
    log, _, means = one_log()
    best = means.argmax(1)
    table = np.eye(K)[best]
    assert off_policy_value(log, best, predictions=means) == off_policy_value(
        log, table, predictions=means
    )


def test_clipping_cuts_weights_and_says_so():
    log, other, _ = one_log()
    whole, cut = off_policy_value(log, other), off_policy_value(log, other, clip=1.0)
    assert (whole.clipped, cut.largest_weight) == (0, whole.largest_weight)
    weights = other[np.arange(N), log.actions] / log.propensities
    assert cut.clipped == (weights > 1).sum() > 0
    assert cut.effective_sample_size > whole.effective_sample_size
    np.testing.assert_allclose(cut.ips.value, (np.minimum(weights, 1) * log.rewards).mean())


def test_a_policy_the_log_says_nothing_of():
    log = LoggedDecisions(None, np.array([0, 0]), np.array([1.0, 2.0]), np.array([0.5, 0.5]))
    found = off_policy_value(log, np.array([1, 1]))
    assert found.effective_sample_size == 0.0
    assert np.isnan(found.snips.value)
    assert found.ips.value == 0.0


def test_probabilities_of_thompson_sampling_are_those_of_its_draws():
    """Of two actions, the first is best with the probability that a Gaussian is positive."""
    backend = ClosedForm(linear(np.eye(2), 1, effect_cov=1.0, action_cov=1.0))
    state = backend.condition(backend.init(), np.ones((3, 1)), [0, 0, 1], [1.0, 1.5, 0.5])
    draws = 4000
    found = choice_probabilities(
        ThompsonSampling(backend), state, [[1.0], [-1.0]], draws=draws, key=1
    )
    posterior = backend.posterior(state)
    gap = float(posterior.mean["action"][0, 0] - posterior.mean["action"][1, 0])
    spread = np.sqrt(float(posterior.cov["action"].sum()))  # the effects are independent
    first = 0.5 * (1 + float(jax.scipy.special.erf(gap / spread / np.sqrt(2))))
    exact = np.array([[first, 1 - first], [1 - first, first]])
    error = np.sqrt(first * (1 - first) / draws)
    assert np.abs(found.probabilities - exact).max() < 4 * error
    np.testing.assert_allclose(found.standard_error, error, rtol=0.1)


def test_certain_and_uniform_policies():
    hierarchy = linear(np.ones((3, 1)), 2)
    contexts = jnp.ones((2, 2))
    sure = LinUCB(hierarchy)
    found = choice_probabilities(sure, sure.init(jax.random.key(0)), contexts, draws=10)
    np.testing.assert_array_equal(found.probabilities, [[1, 0, 0], [1, 0, 0]])
    assert (found.standard_error > 0).all()
    any_action = choice_probabilities(UniformRandom(hierarchy), None, contexts, draws=3000)
    assert np.abs(any_action.probabilities - 1 / 3).max() < 4 * np.sqrt(2 / 9 / 3000)


def changed(**columns):
    log, _, _ = one_log()
    return log._replace(**columns)


def spoilt(column, value):
    values = np.array(getattr(one_log()[0], column), float)
    values[7] = value
    return changed(**{column: values})


TABLE = np.full((N, K), 1 / K)


@pytest.mark.parametrize(
    ("log", "probabilities", "options", "message"),
    [
        (spoilt("propensities", 0.0), TABLE, {}, r"propensity of decision 7 is 0; expected"),
        (spoilt("propensities", -0.1), TABLE, {}, r"propensity of decision 7 is -0\.1"),
        (spoilt("propensities", 1.5), TABLE, {}, r"propensity of decision 7 is 1\.5"),
        (spoilt("propensities", np.nan), TABLE, {}, r"propensities: holds nan at \(7,\)"),
        (spoilt("rewards", np.inf), TABLE, {}, r"rewards: holds inf at \(7,\)"),
        (changed(rewards=np.ones(3)), TABLE, {}, r"shape \(50,\) and rewards \(3,\)"),
        (changed(actions=np.full(N, -1)), TABLE, {}, "whole numbers from 0"),
        (changed(actions=np.zeros(N)), TABLE, {}, "float64 from 0"),
        (changed(), TABLE[:3], {}, r"shape \(3, 4\); expected \(50, K\)"),
        (changed(), TABLE[:, :2], {}, r"shape \(50, 2\).*largest action of the log, 3"),
        (changed(), 0.9 * TABLE, {}, r"decision 0 sum to 0\.9; expected 1"),
        (changed(), TABLE - 0.3, {}, r"hold -0\.05; expected numbers from 0 to 1"),
        (changed(), TABLE * np.nan, {}, "probabilities: holds nan"),
        (changed(), np.full(N, -2), {}, "the action -2"),
        (changed(), TABLE, {"clip": 0.0}, r"clip is 0\.0; expected a positive"),
        (changed(), TABLE, {"predictions": TABLE[:2]}, r"predictions have shape \(2, 4\)"),
        (changed(), TABLE[:, 0], {"predictions": TABLE}, "needs those of all actions"),
    ],
)
def test_refusals(log, probabilities, options, message):
    with as_a_user(), pytest.raises(ValueError, match=message):
        off_policy_value(log, probabilities, **options)


def test_refusals_of_choices():
    hierarchy = linear(np.ones((3, 1)), 2)
    with as_a_user(), pytest.raises(TypeError, match="expected a policy"):
        choice_probabilities(hierarchy, None, np.ones((2, 2)))
    policy = UniformRandom(hierarchy)
    with pytest.raises(ValueError, match=r"shape \(2,\); expected \(n, d\)"):
        choice_probabilities(policy, None, np.ones(2))
    with pytest.raises(ValueError, match="draws: got 0"):
        choice_probabilities(policy, None, np.ones((2, 2)), draws=0)


def test_groups_whose_actions_pay_alike():
    """MIPS is unbiased, and varies less than IPS: its weights are of two groups."""
    means, logging, other = world()
    groups = np.array(["a", "b", "a", "b"])
    means = np.stack([means[:, 0], means[:, 1], means[:, 0], means[:, 1]], axis=1)
    truth = (other * means).sum(1).mean()
    found = [
        off_policy_value(log, other, groups=groups, logging=logging) for log in logs(means, logging)
    ]
    ips, mips = (np.array([getattr(f, n).value for f in found]) for n in ("ips", "marginalised"))
    assert abs(mips.mean() - truth) < 4 * mips.std(ddof=1) / np.sqrt(LOGS)
    assert mips.std() < 0.9 * ips.std()


def test_groups_and_switches_by_their_definitions():
    means, logging, other = world()
    log, q, groups = next(logs(means, logging)), means + 0.5, np.array([0, 0, 1, 1])
    found = off_policy_value(log, other, predictions=q, switch=1.5, groups=groups, logging=logging)
    switched, marginalised = [], []
    for t in range(N):
        a, r = log.actions[t], log.rewards[t]
        w = other[t, a] / logging[t, a]
        switched.append((w * (r - q[t, a]) if w <= 1.5 else 0.0) + other[t] @ q[t])
        same = groups == groups[a]
        marginalised.append(other[t, same].sum() / logging[t, same].sum() * r)
    assert found.switch.value == pytest.approx(np.mean(switched), abs=1e-12)
    assert found.marginalised.value == pytest.approx(np.mean(marginalised), abs=1e-12)
    every = off_policy_value(log, other, predictions=q, switch=1e9)
    assert every.switch == every.doubly_robust
    assert off_policy_value(log, other).switch is None
    assert off_policy_value(log, other).marginalised is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"switch": 2.0}, "switch is given without predictions"),
        ({"switch": -1.0}, "switch is -1.0; expected a positive number"),
        ({"groups": [0, 0, 1, 1]}, "belong together"),
        ({"groups": [0, 1], "logging": np.full((N, K), 0.25)}, r"groups have shape \(2,\)"),
        ({"groups": [0, 0, 1, 1], "logging": np.eye(K)[[3] * N]}, "had probability 0"),
    ],
)
def test_refuses_what_groups_and_switches_cannot_use(given, words):
    _, _, other = world()
    log = LoggedDecisions(None, np.zeros(N, int), np.ones(N), np.full(N, 0.5))
    with pytest.raises(ValueError, match=words):
        off_policy_value(log, other, **given)
