"""New actions of an agent whose scales and noise are unknown: exact given the numbers of each particle."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from mixts.bandit import Agent, BayesUCB, ThompsonSampling
from mixts.inference import ClosedForm, Collapsed
from mixts.inference.mixture.numbers import Numbers
from mixts.models import Gaussian, Hierarchy, Level

# So few particles need not foresee what comes: what is looked at is exact for each.
pytestmark = pytest.mark.filterwarnings("ignore::mixts.bandit.AgentWarning")

WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(2), 5)


def declared(actions: int) -> Hierarchy:
    scale = dist.LogNormal(0.0, 0.7)
    effect = Level("effect", 2, scale=scale)
    action = Level("action", actions, parents={"effect": WEIGHTS[:actions]}, scale=scale)
    return Hierarchy([effect, action], Gaussian(scale), dim=2)


def check(policy, known_state) -> None:
    """Two more actions join after 20 rewards, and are rewarded with the others."""
    rng = np.random.default_rng(1)
    contexts, actions = rng.normal(size=(40, 2)), np.r_[rng.integers(0, 3, 20), np.tile([3, 4], 10)]
    rewards = rng.normal(size=40)
    agent = Agent(policy)
    agent.update(contexts[:20], actions[:20], rewards[:20])
    agent.add_actions(WEIGHTS[3:])
    agent.update(contexts[20:], actions[20:], rewards[20:])
    state = known_state(agent.engine.posterior())
    everything, backend = Numbers(declared(5)), agent.engine.policy.backend
    positions = state.particles.positions
    # What was learned one by one, and what moves of particles make of the rewards that are kept.
    for states in (state.particles.states, backend.mixing.states(positions, state.kept)):
        for i in range(len(state.particles.log_weights)):
            position, own = jax.tree.map(lambda leaf, i=i: leaf[i], (positions, states))
            exact = ClosedForm(everything.given(position))
            expected = exact.posterior(exact.condition(exact.init(), contexts, actions, rewards))
            grown = ClosedForm(Numbers(backend.hierarchy).given(position)).posterior(own)
            found = grown.mean["action"][:5]
            np.testing.assert_allclose(found, expected.mean["action"], atol=1e-8, rtol=1e-8)
            np.testing.assert_allclose(grown.cov["effect"], expected.cov["effect"], atol=1e-8)


def test_new_actions_have_their_own_rewards(x64):
    check(ThompsonSampling(Collapsed(declared(3), particles=8)), lambda state: state)


def test_a_policy_that_counts_rebuilds_what_its_backend_knows(x64):
    check(BayesUCB(Collapsed(declared(3), particles=8)), lambda state: state.known)
