"""What a level accepts, and what it says of itself."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import L, actions, as_a_user, effects
from mixts.models import Level


@pytest.mark.parametrize(
    "scale",
    [
        dist.HalfCauchy(),
        dist.LogNormal(),
        dist.Uniform(0.0, 2.0),
        dist.Gamma(2.0),
        dist.InverseGamma(2.0),
        dist.TruncatedNormal(1.0, 1.0, low=0.0),
        dist.TruncatedCauchy(low=0.0, high=5.0),
        dist.TransformedDistribution(dist.Normal(), dist.transforms.ExpTransform()),
        dist.MixtureSameFamily(dist.Categorical(np.ones(2) / 2), dist.HalfNormal(np.ones(2))),
        dist.Weibull(1.0, 2.0).expand((L, 1)),
        dist.HalfNormal().mask(True),
    ],
    ids=lambda scale: type(scale).__name__,
)
def test_laws_on_positive_numbers_are_scales(scale):
    effects(scale=scale)


def test_a_family_with_a_parameter_per_vector_has_a_standard_form():
    degrees = np.array([3.0, 5.0, 9.0])
    effects(family=lambda loc, tril: dist.MultivariateStudentT(degrees, loc, tril), centered=False)


def test_a_family_sees_the_scale_matrices_that_the_program_will_give_it():
    """A learned scale of (size, 1) gives each vector a matrix: `jnp.diag` would fail on those."""

    def family(loc, tril):
        return dist.Laplace(loc, jnp.diag(tril)).to_event(1)

    effects(family=family, scale=dist.HalfNormal())
    with pytest.raises(ValueError, match=r"scale_tril of shape \(3, 2, 2\)"):
        effects(family=family, scale=dist.HalfNormal(np.ones((L, 1))))


def test_why_a_level_is_not_linear_gaussian():
    level = Level("a", 2)
    assert level.is_linear_gaussian
    assert level.why_not_linear_gaussian == ""
    reasons = {
        "has a family of its own": effects(
            family=lambda loc, tril: dist.MultivariateStudentT(4.0, loc, tril)
        )["effect"],
        "learns its scale": effects(scale=dist.HalfNormal())["effect"],
        "learns its weights for 'effect'": actions(parents={"effect": dist.Normal()}).actions,
        "has a link": actions(link=jnp.tanh).actions,
    }
    for reason, broken in reasons.items():
        assert not broken.is_linear_gaussian
        assert broken.why_not_linear_gaussian == reason


# Equinox looks for arrays among the arguments, and JAX warns that a generator cannot hold any.
@pytest.mark.filterwarnings("ignore:Python iterable type 'generator'")
def test_labels_may_be_any_iterable_of_strings():
    with as_a_user():
        for labels in (["x", "y"], ("x", "y"), np.array(["x", "y"]), (name for name in "xy")):
            assert Level("a", 2, labels=labels).labels == ("x", "y")


def test_numbers_may_be_anything_that_numpy_understands():
    level = actions(
        parents={"effect": [[1, 0, 0]] * 4}, mean=(1, 2), cov=np.float32(2.0), link=None
    ).actions
    assert level.parents["effect"].shape == (4, 3)
    assert level.parents["effect"].dtype == jnp.result_type(float)
    assert (float(level.cov), level.mean.tolist()) == (2.0, [1.0, 2.0])
    with as_a_user():
        assert Level("a", np.int64(3)).size == 3


def test_repr():
    assert repr(Level("effect", 3, mean=1.0)) == "Level('effect', 3)"
    assert repr(actions().actions) == "Level('action', 4, parents=['effect'])"


def test_a_level_cannot_be_changed():
    with pytest.raises(AttributeError):
        Level("a", 2).size = 3


def test_what_was_declared_does_not_change_with_the_callers_arrays():
    """Large arrays in JAX's own precision are those that it would share."""
    weights = np.ones((64, 64), np.float32)
    level = Level("action", 64, parents={"effect": weights}, cov=(cov := np.ones(64, np.float32)))
    weights[:], cov[:] = 7.0, 7.0
    assert level.parents is not None
    np.testing.assert_array_equal(np.asarray(level.parents["effect"]), 1.0)
    np.testing.assert_array_equal(np.asarray(level.cov), 1.0)
