"""Wrong numbers, laws and functions of a level fail where they are declared, and say why."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from mistakes import D, K, L, actions, cases, check_refused, effects, spoilt, unchecked
from mixts.models import Bernoulli, LKJCovariance, Poisson, Sparse

ONES = np.ones((K, L))
INDICES = np.zeros((K, 1), int)


def weighted(weights):
    return actions(parents={"effect": weights})


def student_t(loc, tril):
    return dist.MultivariateStudentT(4.0, loc, tril)


WEIGHTS = {
    "wrong columns": (
        lambda: weighted(np.ones((K, 5))),
        ValueError,
        [
            "level 'action': weights for parent 'effect' have shape (4, 5)",
            "expected (4, 3) or (4, 3, 2, 2)",
            "this level has 4 vectors, the parent 3, dim is 2",
        ],
    ),
    "transposed": (lambda: weighted(ONES.T), ValueError, ["have shape (3, 4); expected (4, 3)"]),
    "one number": (lambda: weighted(1.0), ValueError, ["have shape (); expected (4, 3)"]),
    "matrices of another dim": (
        lambda: weighted(np.ones((K, L, 5, 5))),
        ValueError,
        ["have shape (4, 3, 5, 5)", "(4, 3, 2, 2)", "dim is 2"],
    ),
    "words": (
        lambda: weighted("ones"),
        TypeError,
        ["level 'action': weights for parent 'effect': got 'ones'", "a number or an array"],
    ),
    "complex": (lambda: weighted(1j * ONES), TypeError, ["weights for parent 'effect': got"]),
    "ragged": (lambda: weighted([[1.0], [1.0, 2.0]]), TypeError, ["expected a number or an array"]),
    "NaN": (
        lambda: weighted(spoilt((K, L), np.nan, 4)),
        ValueError,
        ["level 'action': weights for parent 'effect': holds nan at position (1, 1)", "finite"],
    ),
    "infinite": (lambda: weighted(spoilt((K, L), -np.inf)), ValueError, ["holds -inf at position"]),
    "NaN in matrices": (
        lambda: weighted(spoilt((K, L, D, D), np.nan)),
        ValueError,
        ["holds nan at position (0, 0, 0, 0)"],
    ),
    "distribution of another shape": (
        lambda: weighted(dist.Normal(np.zeros((K, 5)), 1.0)),
        ValueError,
        [
            "weights for parent 'effect': the distribution has shape (4, 5)",
            "broadcasts to (4, 3) or (4, 3, 2, 2)",
        ],
    ),
    "Dirichlet over too many": (
        lambda: weighted(dist.Dirichlet(np.ones(5))),
        ValueError,
        ["the distribution has shape (5,)", "broadcasts to (4, 3) or (4, 3, 2, 2)"],
    ),
    "Dirichlet over actions": (
        lambda: weighted(dist.Dirichlet(np.ones(K))),
        ValueError,
        ["the distribution has shape (4,)", "broadcasts to (4, 3)"],
    ),
    "distribution with a parameter NaN": (
        lambda: weighted(unchecked(dist.Normal, np.nan, 1.0)),
        ValueError,
        ["level 'action': weights for parent 'effect' ~ Normal has loc=nan", "finite numbers"],
    ),
    "distribution with a negative scale": (
        lambda: weighted(unchecked(dist.Normal, np.zeros((K, L)), -1.0)),
        ValueError,
        ["weights for parent 'effect' ~ Normal has scale="],
    ),
    "Dirichlet with a parameter zero": (
        lambda: weighted(unchecked(dist.Dirichlet, np.array([1.0, 0.0, 1.0]))),
        ValueError,
        ["weights for parent 'effect' ~ Dirichlet has concentration=[1. 0. 1.]"],
    ),
    "Sparse distribution with a negative scale": (
        lambda: weighted(Sparse(INDICES, unchecked(dist.Normal, 0.0, -1.0))),
        ValueError,
        ["weights for parent 'effect' ~ Normal has scale=-1.0"],
    ),
    "Sparse with too few rows": (
        lambda: weighted(Sparse(INDICES[:2], np.ones((2, 1)))),
        ValueError,
        ["weights for parent 'effect' are Sparse with 2 rows; expected 4, one per vector"],
    ),
    "Sparse beyond the parent": (
        lambda: weighted(Sparse(INDICES + 3, np.ones((K, 1)))),
        ValueError,
        ["weights for parent 'effect': Sparse indices: holds 3", "from 0 to 2"],
    ),
    "Sparse distribution of another shape": (
        lambda: weighted(Sparse(INDICES, dist.Normal(np.zeros((K, 2)), 1.0))),
        ValueError,
        ["the distribution has shape (4, 2)", "broadcasts to (4, 1)"],
    ),
    "Sparse negative index": (
        lambda: Sparse([[0, -1]], [[1.0, 1.0]]),
        ValueError,
        ["Sparse indices: holds -1", "must be from 0"],
    ),
    "Sparse index beyond num_parents": (
        lambda: Sparse([[0, 5]], [[1.0, 1.0]], num_parents=4),
        ValueError,
        ["Sparse indices: holds 5; every entry must be from 0 to 3"],
    ),
    "Sparse num_parents zero": (
        lambda: Sparse([[0]], [[1.0]], num_parents=0),
        ValueError,
        ["Sparse num_parents: got 0", "at least 1"],
    ),
    "Sparse index named twice": (
        lambda: Sparse([[0, 1], [2, 2]], np.ones((2, 2))),
        ValueError,
        ["Sparse: row 1 names parent 2 more than once", "add the weights up"],
    ),
    "Sparse index named twice, learned": (
        lambda: Sparse([[0, 1], [2, 2]], dist.Normal()),
        ValueError,
        ["Sparse: row 1 names parent 2 more than once"],
    ),
    "Sparse indices are fractions": (
        lambda: Sparse([[0.5]], [[1.0]]),
        TypeError,
        ["Sparse indices: got numbers of type float64", "whole numbers"],
    ),
    "Sparse indices in one row": (
        lambda: Sparse([0, 1], [1.0, 1.0]),
        ValueError,
        ["Sparse indices have shape (2,); expected (size, m)"],
    ),
    "Sparse ragged": (
        lambda: Sparse([[0], [0, 1]], [[1.0], [1.0]]),
        TypeError,
        ["Sparse indices: got [[0], [0, 1]]", "an array of whole numbers"],
    ),
    "Sparse values of another shape": (
        lambda: Sparse([[0, 1]], [[1.0]]),
        ValueError,
        ["Sparse values have shape (1, 1) and indices (1, 2)", "the same shape (size, m)"],
    ),
    "Sparse value NaN": (
        lambda: Sparse([[0, 1]], [[1.0, np.nan]]),
        ValueError,
        ["Sparse values: holds nan at position (0, 1)"],
    ),
}

MEANS_AND_COVARIANCES = {
    "mean of another shape": (
        lambda: effects(mean=np.ones(3)),
        ValueError,
        ["level 'effect': mean has shape (3,); expected () or (2,) or (3, 2)"],
    ),
    "mean NaN": (
        lambda: effects(mean=[0.0, np.nan]),
        ValueError,
        ["level 'effect': mean: holds nan at position (1,)"],
    ),
    "mean infinite": (lambda: effects(mean=np.inf), ValueError, ["'effect': mean: holds inf;"]),
    "mean a word": (lambda: effects(mean="zero"), TypeError, ["'effect': mean: got 'zero'"]),
    "mean a law of another shape": (
        lambda: effects(mean=dist.Normal(np.zeros(5))),
        ValueError,
        ["'effect': mean: the distribution has shape (5,); expected () or (2,) or (3, 2)"],
    ),
    "mean a discrete law": (
        lambda: effects(mean=dist.Poisson(1.0)),
        ValueError,
        ["'effect': mean ~ Poisson is discrete", "continuous"],
    ),
    "variance negative": (
        lambda: effects(cov=[1.0, -2.0]),
        ValueError,
        ["level 'effect': cov holds the variance -2", "must be positive"],
    ),
    "cov NaN": (lambda: effects(cov=np.nan), ValueError, ["level 'effect': cov: holds nan;"]),
    "cov infinite": (
        lambda: effects(cov=spoilt((D, D), np.inf)),
        ValueError,
        ["level 'effect': cov: holds inf at position (0, 0)"],
    ),
    "cov not symmetric": (
        lambda: effects(cov=[[1.0, 0.5], [0.0, 1.0]]),
        ValueError,
        ["level 'effect': cov is not symmetric", "differ by up to 0.5", "(cov + cov.T) / 2"],
    ),
    "cov indefinite": (
        lambda: effects(cov=[[1.0, 2.0], [2.0, 1.0]]),
        ValueError,
        ["level 'effect': cov is not positive definite", "smallest eigenvalue -1", "some variance"],
    ),
    "cov singular": (
        lambda: effects(cov=np.ones((D, D))),
        ValueError,
        ["level 'effect': cov is not positive definite"],
    ),
    "one cov of several singular": (
        lambda: effects(cov=np.array([np.eye(D), np.eye(D), np.zeros((D, D))])),
        ValueError,
        ["level 'effect': cov is not positive definite"],
    ),
    "joint cov singular": (
        lambda: effects(cov=np.ones((L * D, L * D))),
        ValueError,
        ["level 'effect': cov is not positive definite"],
    ),
    "cov of another dim": (
        lambda: effects(cov=np.eye(5)),
        ValueError,
        [
            "level 'effect': cov has shape (5, 5)",
            "expected one of (), (2,), (2, 2), (3, 2, 2), (6, 6)",
            "this level has 3 vectors, dim is 2",
        ],
    ),
    "cov per vector, too few": (
        lambda: effects(cov=np.array([np.eye(D)] * 2)),
        ValueError,
        ["level 'effect': cov has shape (2, 2, 2)", "(3, 2, 2)"],
    ),
    "joint cov under parents": (
        lambda: actions(cov=np.eye(K * D)),
        ValueError,
        [
            "level 'action': cov has shape (8, 8): a joint covariance",
            "only a level without parents takes",
            "(2, 2) or (4, 2, 2)",
        ],
    ),
    "cov a law": (
        lambda: effects(cov=dist.HalfNormal()),
        TypeError,
        ["level 'effect': cov is a distribution", "scale=<distribution of the standard deviation>"],
    ),
    "cov a law of larger matrices": (
        lambda: effects(cov=LKJCovariance(3)),
        ValueError,
        ["'effect': cov ~ LKJCovariance has batch shape () and event shape (3, 3)", "(2, 2)"],
    ),
    "cov a law of several matrices": (
        lambda: effects(cov=LKJCovariance(2).expand((3,))),
        ValueError,
        ["'effect': cov ~ LKJCovariance has batch shape (3,)", "one covariance matrix"],
    ),
    "cov a law of any matrices": (
        lambda: effects(cov=dist.Normal(np.zeros((2, 2)), 1.0).to_event(2)),
        ValueError,
        ["'effect': cov ~ Normal can give matrices that are not symmetric and positive definite"],
    ),
}

SCALES = {
    "a list of numbers": (
        lambda: effects(scale=[1.0, 2.0]),
        TypeError,
        ["level 'effect': scale is [1.0, 2.0], in which nothing is learned", "cov=<variances>"],
    ),
    "a list of another length": (
        lambda: effects(scale=[1.0, 2.0, dist.HalfNormal()]),
        ValueError,
        ["level 'effect': scale has 3 entries; expected 2"],
    ),
    "a list with a negative number": (
        lambda: effects(scale=[-1.0, dist.HalfNormal()]),
        ValueError,
        ["level 'effect': scale[0] is -1; expected a positive number"],
    ),
    "a list with a law of many": (
        lambda: effects(scale=[1.0, dist.HalfNormal(np.ones(2))]),
        ValueError,
        ["level 'effect': scale[1]: the distribution has shape (2,); expected ()"],
    ),
    "a list with a law of any number": (
        lambda: effects(scale=[1.0, dist.Normal()]),
        ValueError,
        ["level 'effect': scale[1] ~ Normal can be negative"],
    ),
    "a number": (
        lambda: effects(scale=2.0),
        TypeError,
        ["level 'effect': scale is 2.0", "a NumPyro distribution", "cov=<variance>"],
    ),
    "a class": (
        lambda: effects(scale=dist.HalfNormal),
        TypeError,
        ["level 'effect': scale is <class", "a NumPyro distribution"],
    ),
    "beside cov": (
        lambda: effects(scale=dist.HalfNormal(), cov=2.0),
        ValueError,
        ["level 'effect': got both cov and scale", "the known cov or the learned scale"],
    ),
    "can be negative": (
        lambda: effects(scale=dist.Normal()),
        ValueError,
        ["level 'effect': scale ~ Normal can be negative", "such as HalfNormal or HalfCauchy"],
    ),
    "can be a little negative": (
        lambda: effects(scale=dist.Uniform(-1e-3, 1.0)),
        ValueError,
        ["level 'effect': scale ~ Uniform can be negative"],
    ),
    "expanded, can be negative": (
        lambda: effects(scale=dist.Normal().expand((D,)).to_event(1)),
        ValueError,
        ["level 'effect': scale ~ Normal can be negative"],
    ),
    "NaN": (
        lambda: effects(scale=unchecked(dist.HalfNormal, np.nan)),
        ValueError,
        ["level 'effect': scale ~ HalfNormal has scale=nan; expected finite numbers"],
    ),
    "infinite": (
        lambda: effects(scale=unchecked(dist.HalfCauchy, np.inf)),
        ValueError,
        ["level 'effect': scale ~ HalfCauchy has scale=inf; expected finite numbers"],
    ),
    "negative": (
        lambda: effects(scale=unchecked(dist.HalfNormal, -1.0)),
        ValueError,
        ["level 'effect': scale ~ HalfNormal has scale=-1.0; expected finite", "Positive"],
    ),
    "expanded, one negative": (
        lambda: effects(scale=unchecked(dist.Gamma, np.array([2.0, -2.0])).to_event(1)),
        ValueError,
        ["level 'effect': scale ~ Gamma has concentration=[ 2. -2.]"],
    ),
    "transformed, negative": (
        lambda: effects(scale=unchecked(dist.LogNormal, 0.0, -1.0)),
        ValueError,
        ["level 'effect': scale ~ LogNormal has scale=-1.0"],
    ),
    "transformed by the user, NaN": (
        lambda: effects(
            scale=dist.TransformedDistribution(
                unchecked(dist.Normal, np.nan), dist.transforms.SoftplusTransform()
            )
        ),
        ValueError,
        ["level 'effect': scale ~ Normal has loc=nan"],
    ),
    "truncated, negative": (
        lambda: effects(scale=unchecked(lambda: dist.TruncatedNormal(0.0, -1.0, low=0.0))),
        ValueError,
        ["level 'effect': scale ~ Normal has scale=-1.0"],
    ),
    "bounds NaN": (
        lambda: effects(scale=unchecked(dist.Uniform, 0.0, np.nan)),
        ValueError,
        ["level 'effect': scale ~ Uniform has high=nan; expected finite numbers"],
    ),
    "mixture, one NaN": (
        lambda: effects(
            scale=dist.MixtureSameFamily(
                dist.Categorical(np.ones(2) / 2),
                unchecked(dist.HalfNormal, np.array([1.0, np.nan])),
            )
        ),
        ValueError,
        ["level 'effect': scale ~ HalfNormal has scale=[ 1. nan]"],
    ),
    "of another shape": (
        lambda: effects(scale=dist.HalfNormal(np.ones(L))),
        ValueError,
        [
            "level 'effect': scale: the distribution has shape (3,)",
            "expected () or (2,) or (3, 1) or (3, 2)",
        ],
    ),
}

LINKS_AND_FAMILIES = {
    "link changes the shape": (
        lambda: actions(link=lambda u: u.sum(axis=0)),
        ValueError,
        ["level 'action': link turns shape (4, 2) into (2,)", "an elementwise function"],
    ),
    "link fails": (
        lambda: actions(link=lambda u: u @ jnp.ones((7, 7))),
        ValueError,
        ["level 'action': link fails on an array of shape (4, 2)"],
    ),
    "link without parents": (
        lambda: effects(link=jnp.tanh),
        ValueError,
        ["level 'effect': has a link but no parents", "give parents, or set mean directly"],
    ),
    "link a word": (
        lambda: actions(link="sigmoid"),
        TypeError,
        ["level 'action': link is 'sigmoid'", "a function such as jax.nn.sigmoid"],
    ),
    "family is a reward": (
        lambda: effects(family=Bernoulli()),
        TypeError,
        [
            "level 'effect': family is the reward family Bernoulli()",
            "belongs in Hierarchy(levels, reward=...)",
            "family(loc, scale_tril)",
        ],
    ),
    "family is a class of rewards": (
        lambda: effects(family=Poisson),
        TypeError,
        ["level 'effect': family is the reward family", "belongs in Hierarchy(levels, reward=...)"],
    ),
    "family is one distribution": (
        lambda: effects(family=dist.Normal()),
        TypeError,
        ["level 'effect': family is <numpyro", "a function family(loc, scale_tril)"],
    ),
    "family a word": (
        lambda: effects(family="student"),
        TypeError,
        ["level 'effect': family is 'student'", "such as lambda loc, tril: MultivariateStudentT"],
    ),
    "family of another shape": (
        lambda: effects(family=lambda loc, tril: student_t(loc[0], tril)),
        ValueError,
        [
            "level 'effect': family(loc, scale_tril) gives draws of shape (2,)",
            "expected (3, 2)",
        ],
    ),
    "family of numbers": (
        lambda: effects(family=lambda loc, tril: dist.Laplace(loc, jnp.diag(tril))),
        ValueError,
        [
            "level 'effect': family(loc, scale_tril) gives draws",
            "of shape (3, 2) and event shape ()",
            "expected (3, 2) and (2,)",
            ".to_event(1)",
        ],
    ),
    "family returns no distribution": (
        lambda: effects(family=lambda loc, tril: loc),
        TypeError,
        ["level 'effect': family(loc, scale_tril) returned a", "expected a NumPyro distribution"],
    ),
    "family fails": (
        lambda: effects(family=lambda loc: dist.Laplace(loc)),
        ValueError,
        [
            "level 'effect': family(loc, scale_tril) fails on loc of shape (3, 2)",
            "scale_tril of shape (2, 2)",
            "takes 1 positional argument",
        ],
    ),
    "family without a standard form": (
        lambda: effects(
            family=lambda loc, tril: dist.LogNormal(loc, jnp.diag(tril)).to_event(1),
            centered=False,
        ),
        ValueError,
        [
            "level 'effect': family(loc, scale_tril) is not a location-scale family",
            "declare the level with centered=True",
        ],
    ),
}


@cases(weights=WEIGHTS, moments=MEANS_AND_COVARIANCES, scale=SCALES, function=LINKS_AND_FAMILIES)
def test_fails_when_declared(declare, error, parts):
    check_refused(declare, error, parts)
