"""Forms of a covariance: which one it is, its matrix and its square root."""

import jax.numpy as jnp
import numpy as np
import pytest

from hierarchies import COVARIANCES, covariance
from mistakes import D, L, effects
from mixts.models.covariance import as_covariance
from tolerance import tolerance


@pytest.mark.parametrize("form", COVARIANCES)
def test_the_square_root_gives_the_matrix_back(precision, form):
    """`T T' = cov`, with T lower triangular, in the form in which the covariance was written."""
    cov = jnp.asarray(covariance(form, 3, 2, np.random.default_rng(0)), dtype=float)
    declared = as_covariance(cov, 3, 2)
    tril, matrix = np.asarray(declared.scale_tril()), declared.matrices()
    assert tril.shape == matrix.shape
    np.testing.assert_array_equal(tril, np.tril(tril))
    np.testing.assert_allclose(tril @ np.swapaxes(tril, -1, -2), matrix, **tolerance())
    assert declared.is_diagonal == (form in ("variance", "diagonal"))
    assert declared.is_joint == (form == "joint")


def test_one_vector_has_no_joint_covariance():
    """Its covariance is a matrix like any other, also under parents."""
    assert not as_covariance(jnp.eye(2), 1, 2).is_joint


def test_joint_covariances_of_numbers():
    """With dim 1 the joint covariance is (size, size), and a vector's own is (1, 1)."""
    assert as_covariance(jnp.eye(3), 3, 1).is_joint
    assert not as_covariance(jnp.eye(1), 3, 1).is_joint


def test_a_form_stays_as_small_as_it_was_written():
    assert effects(cov=2.0)["effect"].cov.shape == ()
    assert effects(cov=[1.0, 2.0])["effect"].cov.shape == (D,)
    assert effects(cov=np.eye(D))["effect"].cov.shape == (D, D)


def test_rounding_is_not_asymmetry():
    """A covariance that float32 arithmetic left slightly asymmetric is accepted."""
    effects(cov=[[2.0, 0.5], [0.5 * (1 + 1e-6), 1.0]])


def test_definite_enough_depends_on_the_precision(precision):
    """A condition number of 1e8 has a Cholesky factor in float64 and none in float32."""
    cov = np.diag([1.0, 1e-8])
    if precision == np.float64:
        effects(cov=cov)
    else:
        with pytest.raises(ValueError, match="not positive definite in float32"):
            effects(cov=cov)


def test_the_prior_mean_of_the_paper_is_a_row_per_effect():
    """`mu_Psi` of R^{Ld} is written (L, d), so that its numbers cannot be in the wrong order."""
    assert effects(mean=np.ones((L, D)))["effect"].mean.shape == (L, D)
