"""`empirical_bayes` finds the scales that made the data, keeps what was declared, and says how it went."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dense_posterior import dense_posterior, observation_rows, posterior_by_sums
from gaussian_models import rows, three_levels
from glm_models import simulate
from hierarchies import Few, Group, Model
from mistakes import as_a_user
from mixts.inference import Trouble, empirical_bayes
from mixts.models import Bernoulli, Data, Hierarchy, Level, Sparse
from sampling import unoptimised
from scipy_density import moments


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


# What it finds -----------------------------------------------------------------------------------


def nested(effect: float, action: float, noise: float) -> Model:
    """50 effects under 200 actions with one parent each, in two dimensions."""
    parents = Few(np.arange(200)[:, None] % 50, np.ones((200, 1)))
    groups = [
        Group("effect", 50, cov=effect),
        Group("action", 200, {"effect": parents}, cov=action),
    ]
    return Model(groups, 2, noise=noise)


@pytest.mark.slow
def test_recovers_the_scales_that_made_the_data():
    """Declared as ones, in float32, with 4,000 rewards.

    The variance of m known normal numbers has a standard error of sqrt(2 / m) on the log scale: 0.141
    for 50 effects of two numbers and 0.071 for 200 actions; the noise has sqrt(1 / 2n) = 0.011. Vectors
    are known only up to noise: an action to about 0.025, against its variance of 0.25, and an effect to
    (0.25 + 0.025) / 4 = 0.07, against 4. That widens the errors by a factor of 1.02 and 1.1; each is
    allowed four of them.
    """
    made = nested(4.0, 0.25, 0.5)
    _, seen = simulate(made, 4000, np.random.default_rng(0))
    found = empirical_bayes(nested(1.0, 1.0, 1.0).hierarchy(), Data(*seen))
    assert found.status.ok
    effect, action = found.hierarchy.levels
    noise = found.hierarchy.reward.noise
    assert abs(np.log(effect.cov / 4.0)) < 4 * 1.02 * np.sqrt(2 / 100)
    assert abs(np.log(action.cov / 0.25)) < 4 * 1.1 * np.sqrt(2 / 400)
    assert abs(np.log(noise / 0.5)) < 4 * np.sqrt(1 / 8000)
    # The search was in float64, the answer is not.
    assert {x.dtype.name for x in (effect.cov, action.cov, noise)} == {"float32"}
    assert jnp.ones(()).dtype == np.float32

    def reference(effect, action, noise):
        return posterior_by_sums(nested(effect, action, noise), seen).log_evidence

    best = tuple(float(x) for x in (effect.cov, action.cov, noise))
    # The data were rounded to float32 on their way in.
    np.testing.assert_allclose(found.log_evidence, reference(*best), rtol=1e-7)
    for position in range(3):
        for factor in (0.95, 1.05):
            worse = [x * (factor if i == position else 1.0) for i, x in enumerate(best)]
            assert reference(*worse) < found.log_evidence


def small(**changes) -> Model:
    """Three effects, six actions; `changes` are made to the effects."""
    weights = np.random.default_rng(5).normal(size=(6, 3))
    weights[0, 0] = weights[3, 2] = 0.0
    effect = Group("effect", 3, **{"cov": 2.0, **changes})
    return Model([effect, Group("action", 6, {"effect": weights}, cov=0.5)], 2, noise=0.6)


def test_means_are_generalised_least_squares(x64):
    """With known covariances the mean that every effect shares has a closed form: Aitken's estimate."""
    model = small(mean=np.zeros(2))
    seen = rows(model, 60, np.random.default_rng(1))
    found = empirical_bayes(model.hierarchy(), Data(*seen), learn=("mean",), levels=("effect",))
    assert found.status.ok
    H = observation_rows(model, seen.contexts, seen.actions)
    V = H @ moments(model)[1] @ H.T + model.noise**2 * np.eye(len(H))
    columns = [moments(small(mean=unit))[0] for unit in np.eye(2)]
    X = H @ np.stack(columns, axis=1)
    expected = np.linalg.solve(X.T @ np.linalg.solve(V, X), X.T @ np.linalg.solve(V, seen.rewards))
    # The search stops where its gradient is below 1e-6.
    np.testing.assert_allclose(found.hierarchy["effect"].mean, expected, atol=1e-5)


# What it keeps -----------------------------------------------------------------------------------


def numbers(hierarchy):
    leaves, _ = jax.tree_util.tree_flatten_with_path(hierarchy)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def test_every_form_is_kept(x64):
    """Joint, matrices and a matrix; matrices, scalars and a padded sparse row; all of it learned."""
    model = three_levels()
    seen = rows(model, 60, np.random.default_rng(2))
    hierarchy = model.hierarchy()
    learn = ("cov", "noise", "mean", "weights")
    found = empirical_bayes(hierarchy, Data(*seen), learn=learn, max_steps=5)
    before, after = numbers(hierarchy), numbers(found.hierarchy)
    assert before.keys() == after.keys()
    for place, old in before.items():
        new = after[place]
        assert new.shape == old.shape
        assert new.dtype == old.dtype
        if place.endswith("indices"):
            np.testing.assert_array_equal(new, old)
        elif "parents" in place:
            np.testing.assert_array_equal(new == 0, old == 0)
            assert np.all(new[old != 0] != old[old != 0])
        else:
            assert np.all(new != old), place
    for level in found.hierarchy.levels:
        assert np.linalg.eigvalsh(level.cov).min() > 0
        np.testing.assert_allclose(level.cov, np.swapaxes(level.cov, -1, -2), rtol=1e-12)
    assert isinstance(found.hierarchy["item"].parents["zone"], Sparse)
    assert found.log_evidence > dense_posterior(model, seen).log_evidence + 1.0


@pytest.mark.parametrize(
    ("learn", "levels", "moved"),
    [
        (("cov",), ("effect",), {"effect cov"}),
        (("noise",), None, {"noise"}),
        (("cov", "noise"), ("action",), {"action cov", "noise"}),
        (("weights",), None, {"action weights"}),
    ],
)
def test_only_what_was_chosen_moves(learn, levels, moved, x64):
    model = small(cov=np.array([2.0, 0.3]))
    seen = rows(model, 40, np.random.default_rng(3))
    found = empirical_bayes(model.hierarchy(), Data(*seen), learn=learn, levels=levels, max_steps=3)

    def parts(hierarchy):
        effect, action = hierarchy.levels
        return {
            "effect cov": effect.cov,
            "effect mean": effect.mean,
            "action cov": action.cov,
            "action mean": action.mean,
            "action weights": action.parents["effect"],
            "noise": hierarchy.reward.noise,
        }

    before, after = parts(model.hierarchy()), parts(found.hierarchy)
    # Free numbers go through a logarithm and back; zero weights stay.
    changed = {name for name in before if not np.allclose(after[name], before[name], rtol=1e-12)}
    assert changed == moved
    weights = np.asarray(after["action weights"])
    np.testing.assert_array_equal(weights == 0, model.groups[1].parents["effect"] == 0)


# How it went -------------------------------------------------------------------------------------


def test_an_effect_absent_from_the_data_is_undetermined():
    """No action under a brand was taken: its variance does not matter, and stays as declared."""
    zones, brands = np.array([[1.0], [1.0], [0.0]]), np.array([[0.0], [0.0], [1.0]])
    item = Group("item", 3, {"zone": zones, "brand": brands})
    model = Model([Group("zone", 1, cov=2.0), Group("brand", 1, cov=3.0), item], 2)
    seen = rows(model, 30, np.random.default_rng(4), taken=2)
    found = empirical_bayes(model.hierarchy(), Data(*seen), learn=("cov",), levels=("brand",))
    assert Trouble.UNDETERMINED in found.status
    np.testing.assert_allclose(found.hierarchy["brand"].cov, 3.0, rtol=1e-6)


def test_steps_run_out():
    model = small()
    seen = rows(model, 40, np.random.default_rng(5))
    found = empirical_bayes(model.hierarchy(), Data(*seen), max_steps=1)
    assert Trouble.STEP_LIMIT in found.status
    assert found.steps == 1
    assert "raise max_steps" in str(found.status)
    assert found.log_evidence > dense_posterior(model, seen).log_evidence


def test_rewards_too_large_to_square_fail(x64):
    model = small()
    seen = rows(model, 40, np.random.default_rng(5))
    seen = seen._replace(rewards=1e200 * seen.rewards)
    found = empirical_bayes(model.hierarchy(), Data(*seen))
    assert Trouble.FAILED in found.status


# What it refuses ---------------------------------------------------------------------------------

DATA = np.ones((4, 2)), [0, 1, 2, 3], np.ones(4)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"learn": "cov"}, "learn is 'cov'; expected a tuple of some of cov, noise, mean, weights"),
        ({"learn": ()}, r"learn is \(\); expected a tuple"),
        ({"learn": ("cov", "scale")}, r"learn is \('cov', 'scale'\); expected a tuple"),
        ({"levels": "effect"}, "levels is 'effect'; expected a tuple of some of effect, action"),
        ({"levels": ("item",)}, r"levels is \('item',\); expected a tuple of some of effect"),
        ({"levels": (), "learn": ("cov",)}, r"nothing to learn: levels \(\) have no cov"),
        (
            {"levels": ("effect",), "learn": ("weights",)},
            r"nothing to learn: levels \('effect',\) have no weights",
        ),
    ],
)
def test_choices_that_make_no_sense(choice, message):
    with as_a_user(), pytest.raises(ValueError, match=message):
        empirical_bayes(small().hierarchy(), Data(*DATA), **choice)


def test_a_hierarchy_that_is_not_gaussian_above_the_rewards():
    levels = [
        Level("effect", 2),
        Level("action", 4, parents={"effect": np.ones((4, 2))}, link=jnp.tanh),
    ]
    with pytest.raises(ValueError, match="empirical_bayes needs linear-Gaussian levels"):
        empirical_bayes(Hierarchy(levels, Bernoulli(), 2), Data(*DATA))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x, a, y: Data(x, [0, 1, 2, 6], y), "actions: holds 6; every entry must be"),
        (lambda x, a, y: Data(x[:, :1], a, y), r"contexts have shape \(4, 1\); expected \(n, 2\)"),
        (lambda x, a, y: Data(x, a[:3], y), "shapes do not fit"),
        (
            lambda x, a, y: (x, a, y),
            r"data is a tuple; expected Data\(contexts, actions, rewards\)",
        ),
        (lambda x, a, y: None, "data is a NoneType; expected Data"),
    ],
)
def test_data_that_do_not_fit(spoil, message):
    """A wrong action is refused here, although inside jit it would only not be counted."""
    with as_a_user(), pytest.raises((ValueError, TypeError), match=message):
        empirical_bayes(small().hierarchy(), spoil(*DATA))
    assert not jax.config.read("jax_enable_x64")
