"""A hierarchy in words."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Sparse, linear


def test_a_crossed_hierarchy():
    hierarchy = Hierarchy(
        [
            Level("studio", 2, mean=0.5, cov=np.eye(4)),
            Level("genre", 12, cov=[1.0, 2.0]),
            Level(
                "director",
                3,
                parents={"studio": dist.Dirichlet(jnp.ones(2)).expand((3,))},
                scale=dist.HalfNormal().expand((2,)),
                centered=False,
            ),
            Level(
                "movie",
                4,
                parents={
                    "studio": np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]),
                    "genre": Sparse([[0, 1], [1, 2], [2, 3], [3, 4]], np.ones((4, 2))),
                    "director": np.ones((4, 3, 2, 2)),
                },
                mean=[0.0, 1.0],
                link=jax.nn.sigmoid,
            ),
        ],
        Gaussian(dist.HalfNormal()),
        2,
    )
    assert repr(hierarchy) == (
        "Hierarchy of 4 levels, dim 2\n"
        "  studio     2 x  Normal(0.5; cov given (4, 4))\n"
        "  genre     12 x  Normal(0; cov given (2,))\n"
        "  director   3 x  Normal(studio (learned ~ Dirichlet); scale ~ HalfNormal, non-centred)\n"
        "  movie      4 x  Normal(sigmoid(mean (2,) + director (matrices) + genre (2 of 12)"
        " + studio (weights, 25% missing)); cov 1)\n"
        "  reward    Gaussian(noise ~ HalfNormal) of context . movie"
    )


def test_one_level():
    assert repr(Hierarchy([Level("arm", 10, cov=2.0)], Bernoulli(), 1)) == (
        "Hierarchy of 1 level, dim 1\n"
        "  arm     10 x  Normal(0; cov 2)\n"
        "  reward  Bernoulli() of context . arm"
    )


def test_a_family_has_its_own_name():
    def student_t(loc, tril):
        return dist.MultivariateStudentT(4.0, loc, tril)

    text = repr(Hierarchy([Level("arm", 2, family=student_t)], Gaussian(), 1))
    assert "student_t(0; cov 1)" in text


def test_few_parents_are_counted_out_of_all():
    """`Sparse` may not know how many parents there are; the hierarchy does."""
    sparse = Sparse([[0], [1]], [[1.0], [1.0]])
    levels = [Level("effect", 50), Level("action", 2, parents={"effect": sparse})]
    assert "effect (1 of 50)" in repr(Hierarchy(levels, Gaussian(), 1))
    assert repr(sparse) == "Sparse(1 of 2 parents for each of 2 vectors)"


def test_matrices_of_zeros_are_missing_arrows():
    maps = np.zeros((2, 2, 3, 3))
    maps[0, 0, 0, 1] = 1.0
    assert "effect (matrices, 75% missing)" in repr(linear(maps, 3))
