"""`Collapsed` as a backend: online and at once, what it refuses, and what it says of itself."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import as_a_user
from mixts.inference import ClosedForm, Collapsed, Nuts, Trouble, best_backend, calibrate
from mixts.models import Gaussian, Hierarchy, Level, linear
from sampling import unoptimised

K, L, D = 5, 2, 2
WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(L), K)


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def declared(scale=dist.LogNormal(0.0, 0.7), noise=dist.LogNormal(-1.0, 0.5)) -> Hierarchy:
    effect = Level("effect", L, scale=scale)
    action = Level("action", K, parents={"effect": WEIGHTS}, scale=scale)
    return Hierarchy([effect, action], Gaussian(noise), D)


def rows(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    contexts, actions = rng.uniform(-1, 1, (n, D)), rng.integers(0, K, n)
    vectors = rng.normal(size=(K, D))
    return contexts, actions, np.sum(contexts * vectors[actions], 1) + 0.4 * rng.normal(size=n)


@pytest.fixture(scope="module")
def backend():
    return Collapsed(declared(), particles=32, warmup=50, samples=50, chains=2)


@pytest.fixture(scope="module")
def state(backend):
    return backend.condition(backend.init(jax.random.key(1)), *rows(30))


def test_given_the_numbers_each_particle_is_closed_form(x64):
    backend = Collapsed(declared(), particles=8)
    state = backend.init(jax.random.key(0))
    for row in zip(*rows(3), strict=True):
        state = backend.update(state, *row)
    values = backend.unknowns(state)
    for m in (0, 5):
        known = backend.hierarchy.unknowns.given({name: v[m] for name, v in values.items()})
        exact = ClosedForm(known)
        expected = exact.posterior(exact.condition(exact.init(), *rows(3)))
        own = jax.tree.map(lambda leaf, m=m: leaf[m], state.particles.states)
        found = exact.posterior(own)
        for level in expected.mean:
            np.testing.assert_allclose(found.mean[level], expected.mean[level], atol=1e-9)
            np.testing.assert_allclose(found.cov[level], expected.cov[level], atol=1e-9)


def test_weights_are_the_evidence_of_each_particle(x64):
    """Before any renewal, a weight is the evidence given the particle's numbers, and so is their mean."""
    backend = Collapsed(declared(), particles=8)
    start = backend.init(jax.random.key(0))
    state = start
    for row in zip(*rows(2), strict=True):
        state = backend.update(state, *row)
    assert int(state.particles.info.renewals) == 0
    positions = start.particles.positions
    evidences = jax.vmap(lambda z: backend.mixing.log_evidence(z, state.kept))(positions)
    np.testing.assert_allclose(backend.weights(state), jax.nn.softmax(evidences), rtol=1e-9)
    total = jax.scipy.special.logsumexp(evidences) - np.log(8)
    np.testing.assert_allclose(backend.log_evidence(state), total, rtol=1e-9)


def test_works_inside_jit_scan_and_vmap(backend):
    contexts, actions, rewards = (jnp.asarray(part) for part in rows(20))

    def run(key):
        def one(state, row):
            return backend.update(state, *row), backend.sample_scores(key, state, row[0])

        state, scores = jax.lax.scan(one, backend.init(key), (contexts, actions, rewards))
        return backend.log_evidence(state), scores, backend.status(state).ok

    keys = jax.random.split(jax.random.key(0), 3)
    evidence, scores, fine = jax.jit(jax.vmap(run))(keys)
    assert scores.shape == (3, 20, K)
    assert np.isfinite(evidence).all()
    assert fine.all()
    # Each run is the one it would be by itself.
    alone = jax.jit(run)(keys[1])
    np.testing.assert_allclose(evidence[1], alone[0], rtol=1e-3)


def test_many_draws_and_their_moments(backend, state):
    posterior = backend.posterior(state)
    drawn = posterior.draw(jax.random.key(0), 400)
    assert drawn["action"].shape == (400, K, D)
    sd = np.sqrt(np.diagonal(posterior.cov["action"], axis1=1, axis2=2))
    # 20 means of 400 draws, of which the chains' 100 are four times each.
    assert np.abs((drawn["action"].mean(0) - posterior.mean["action"]) / sd).max() < 5 / np.sqrt(
        100
    )
    sites = backend.draws(posterior.state)
    assert sites["action"].shape == (2, 50, K, D)
    assert sites["reward_noise"].shape == (2, 50)
    assert set(backend.diagnostics(posterior.state).index) == set(backend.hierarchy.unknowns.laws)


def test_arviz_has_every_site_and_chains(backend, state):
    view = backend.posterior(state).to_arviz()["posterior"]
    assert dict(view.sizes)["chain"] == 2
    assert {"effect", "action", "effect_scale", "action_scale", "reward_noise"} <= set(
        view.data_vars
    )


def test_a_posterior_can_go_on_learning(backend, state):
    after = backend.posterior(state).state
    more = backend.update(after, *(part[0] for part in rows(1, seed=4)))
    assert more.particles.states is not None
    assert np.isfinite(backend.log_evidence(more))


def test_exposure_is_many_rewards_in_one(x64):
    """The mean of m rewards in one context says of the particles what the m rewards would."""
    backend = Collapsed(declared(noise=0.5), particles=8)
    context, rewards = np.array([0.5, -1.0]), np.array([0.2, 1.0, 0.3])
    each = backend.condition(backend.init(), np.tile(context, (3, 1)), [0] * 3, rewards)
    one = backend.condition(backend.init(), context[None], [0], [rewards.mean()], [3.0])
    np.testing.assert_allclose(backend.weights(one), backend.weights(each), rtol=1e-6)


def test_forgetting_everything_but_a_little_leads_back_to_the_prior(backend, state):
    nearly = backend.forget(state, 1e-6)
    fresh = Collapsed(declared(), particles=512).init(jax.random.key(5))
    values, prior = backend.unknowns(nearly), Collapsed(declared(), particles=512).unknowns(fresh)
    weights = backend.weights(nearly)
    mean = float(weights @ jnp.log(values["reward_noise"]))
    # Of 32 particles, worth 16 at least, from a law with the deviation 0.5.
    assert abs(mean - np.log(prior["reward_noise"]).mean()) < 4 * 0.5 / np.sqrt(16)
    assert np.isnan(backend.log_evidence(nearly))


def test_forgetting_nothing_changes_nothing(backend, state):
    same = backend.forget(state, 1.0)
    np.testing.assert_array_equal(backend.weights(same), backend.weights(state))


def test_what_cannot_be_used_is_counted(backend):
    step = jax.jit(backend.update)
    state = step(backend.init(), jnp.ones(D), 99, 1.0)
    state = step(state, jnp.ones(D), 0, jnp.nan)
    status = backend.status(state)
    assert int(status.counts[Trouble.REJECTED]) == 2
    np.testing.assert_allclose(backend.weights(state), 1 / 32, rtol=1e-6)


def test_collapsed_weights_are_a_status():
    """A reward that one particle alone foresees."""
    narrow = declared(noise=dist.LogNormal(-4.0, 3.0), scale=dist.LogNormal(-6.0, 0.01))
    backend = Collapsed(narrow, particles=16)
    state = backend.update(backend.init(), jnp.ones(D), 0, 500.0)
    assert Trouble.COLLAPSED in backend.status(state)


def test_best_backend_takes_it():
    choice = best_backend(declared())
    assert isinstance(choice.backend, Collapsed)
    assert choice.cost.operations is not None
    many = dist.Normal(0.0, 1.0).expand([40, 2])
    weights = Level("action", 40, parents={"effect": many})
    assert isinstance(
        best_backend(Hierarchy([Level("effect", 2), weights], Gaussian(), 1)).backend, Nuts
    )


def with_link() -> Hierarchy:
    effect = Level("effect", L, scale=dist.HalfNormal(1.0))
    return Hierarchy(
        [effect, Level("action", K, parents={"effect": WEIGHTS}, link=jnp.tanh)], Gaussian(), D
    )


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Collapsed(linear([[1.0]], dim=1)), ValueError, "learns no scale"),
        (lambda: Collapsed("x"), TypeError, "expected a Hierarchy"),
        (lambda: Collapsed(declared(), particles=2), ValueError, "at least 8"),
        (lambda: Collapsed(declared(), moves=0), ValueError, "moves"),
        (lambda: Collapsed(declared(), target_accept=2.0), ValueError, "between 0 and 1"),
        (lambda: Collapsed(with_link()), ValueError, "level 'action' has a link.*Nuts or Svi"),
    ],
)
def test_refuses(make, error, message):
    with as_a_user(), pytest.raises(error, match=message):
        make()


def test_numbers_of_their_own_keep_newcomers_out():
    own = Level("action", K, scale=dist.HalfNormal(jnp.ones((K, 1))))
    backend = Collapsed(Hierarchy([own], Gaussian(0.5), D), particles=8)
    with pytest.raises(TypeError, match="of shape"):
        backend.with_hierarchy(backend.hierarchy)


@pytest.mark.slow
def test_calibration():
    """Probabilities are right for every level, for scales and noise: 200 simulations."""
    result = calibrate(
        declared(),
        Collapsed(declared(), particles=64, chains=2, warmup=150, samples=150),
        simulations=200,
        observations=30,
        key=jax.random.key(3),
    )
    assert result.p_value > 0.01, result
    assert {"effect_scale", "action_scale", "reward_noise"} <= set(result.ranks)
