"""Choice probabilities of Thompson sampling and of the top two, against integrals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mixts.bandit import Agent, SyntheticProblem, ThompsonSampling, TopTwo, simulate
from mixts.inference import ClosedForm
from three_arms import arms, best_probabilities, chosen_shares, standard_errors

N = 20_000


def of_the_top_two(alpha: np.ndarray, top: float) -> np.ndarray:
    """Leader with probability `top`, else the next different one of independent draws."""
    found = top * alpha
    for leader in range(3):
        for other in range(3):
            if other != leader and alpha[other]:
                found[other] += (1 - top) * alpha[leader] * alpha[other] / (1 - alpha[leader])
    return found


def test_thompson_sampling_chooses_by_the_probability_of_being_best():
    expected = best_probabilities()
    found = chosen_shares(ThompsonSampling(arms()), N)
    assert (np.abs(found - expected) < 4 * standard_errors(expected, N)).all()


@pytest.mark.parametrize("top", [0.0, 0.5, 0.9, 1.0])
def test_choice_probabilities(top):
    expected = of_the_top_two(best_probabilities(), top)
    found = chosen_shares(TopTwo(arms(), top=top), N)
    assert (np.abs(found - expected) < 4 * standard_errors(expected, N)).all()


def test_only_allowed_actions_compete():
    allowed = [True, False, True]
    expected = of_the_top_two(best_probabilities(allowed), 0.5)
    found = chosen_shares(TopTwo(arms()), N, allowed)
    assert (np.abs(found - expected) < 4 * standard_errors(expected, N)).all()
    assert chosen_shares(TopTwo(arms()), 100, [False, True, False])[1] == 1.0


def test_without_another_leader_the_second_best_is_chosen():
    """One further draw, in which the same arm nearly always leads, so that its second best is next."""
    backend = arms()
    state = backend.condition(backend.init(), np.ones((400, 1)), [0] * 400, [9.0] * 400)
    policy = TopTwo(backend, top=0.0, draws=1)
    act = jax.jit(jax.vmap(lambda key: policy.act(key, state, jnp.ones(1))))
    chosen = np.asarray(act(jax.random.split(jax.random.key(0), 500)))
    assert set(chosen.tolist()) == {1, 2}


def test_agents_and_simulations_take_it(tmp_path):
    agent = Agent(TopTwo(arms(), top=0.25), labels=["a", "b", "c"])
    chosen = {agent.act([1.0], eligible=["b", "c"]).action for _ in range(50)}
    assert chosen == {"b", "c"}
    agent.save(tmp_path / "agent.npz")
    assert float(Agent.load(tmp_path / "agent.npz").policy.top) == 0.25
    problem = SyntheticProblem(num_actions=4, num_effects=2, dim=2)
    found = simulate(
        problem, {"top two": lambda h: TopTwo(ClosedForm(h))}, 20, 3, 0, progress=False
    )
    assert np.isfinite(found.regret["top two"]).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [({"top": 1.5}, "top is 1.5; expected a probability"), ({"draws": 0}, "draws: got 0")],
)
def test_refuses(given, words):
    with pytest.raises(ValueError, match=words):
        TopTwo(arms(), **given)
