"""Policies in JSON and back: the same structure, by a list of classes and nothing else."""

import copy
import inspect
import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from mixts import bandit, inference, models
from mixts.bandit import (
    GLMTS,
    GLMUCB,
    UCBGLM,
    HierTS,
    LinTS,
    LinUCB,
    Policy,
    ThompsonSampling,
    UniformRandom,
)
from mixts.bandit.agent.storage.declaration import (
    CLASSES,
    encode,
    fingerprint,
    foreign_parts,
    named_arrays,
    rebuild,
)
from mixts.bandit.agent.storage.file import AgentFileError
from mixts.inference import (
    Backend,
    ClosedForm,
    Collapsed,
    ExpectationPropagation,
    Factored,
    Laplace,
    Nuts,
    Svi,
)
from mixts.models import (
    Bernoulli,
    Gaussian,
    Hierarchy,
    Kernel,
    Level,
    Poisson,
    Reward,
    Sparse,
    glm,
    nonlinear,
)

RNG = np.random.default_rng(0)
WEIGHTS = RNG.uniform(-1, 1, (4, 2))


def movies(reward=Gaussian(0.5), **action) -> Hierarchy:
    genre = Level("genre", 2, mean=[1.0, -1.0], cov=RNG.uniform(1, 2, 2), labels=("a", "b"))
    studio = Level("studio", 3, cov=np.eye(6) + 0.1)
    few = Sparse([[0, 1], [2, 0], [1, 1], [0, 2]], [[1.0, 0.5], [1, 1], [0.3, 0.0], [1, 2]])
    movie = Level("movie", 4, parents={"studio": few, "genre": WEIGHTS}, cov=0.3, **action)
    return Hierarchy([genre, studio, movie], reward, 2)


def kernels() -> list[Level]:
    """A level of each kernel, with known numbers."""
    path = np.eye(3, k=1) + np.eye(3, k=-1)
    known = {
        "ar1": models.AR1(0.5),
        "graph": models.Graph(path, 0.9),
        "process": models.GaussianProcess([[0.0], [1.0], [3.0]], [2.0], 1.5),
        "kin": models.Relationship(path / 4 + np.eye(3)),
    }
    return [Level(name, 3, kernel=kernel, cov=[1.0, 2.0]) for name, kernel in known.items()]


ON_ALL = {level.name: np.eye(3) for level in kernels()}

POLICIES = {
    "closed form": lambda: ThompsonSampling(ClosedForm(movies())),
    "correlated actions": lambda: ThompsonSampling(
        ClosedForm(Hierarchy([Level("action", 3, cov=np.eye(3) + 0.2)], Gaussian(), 1))
    ),
    "kernels": lambda: ThompsonSampling(
        ClosedForm(Hierarchy([*kernels(), Level("action", 3, parents=ON_ALL)], Gaussian(), 2))
    ),
    "factored": lambda: ThompsonSampling(Factored(glm(WEIGHTS, 2), means="joint", capacity=8)),
    "laplace": lambda: ThompsonSampling(Laplace(movies(Bernoulli()), sites="mle")),
    "matched": lambda: ThompsonSampling(ExpectationPropagation(movies(Poisson()), sweep=False)),
    "drifts": lambda: ThompsonSampling(ClosedForm(movies(drift=[0.1, 0.2]))),
    "half-life": lambda: ThompsonSampling(ClosedForm(movies()), half_life=30.0),
    "counts": lambda: ThompsonSampling(Laplace(movies(Poisson()))),
    "link": lambda: ThompsonSampling(Laplace(nonlinear(WEIGHTS, 2, link=jnp.tanh))),
    "linear": lambda: LinTS(movies()),
    "one effect": lambda: HierTS(movies()),
    "clicks alone": lambda: GLMTS(movies(Bernoulli())),
    "ucb": lambda: LinUCB(movies(), delta=0.1, horizon=100),
    "ucb glm": lambda: UCBGLM(movies(Bernoulli()), slope=0.25),
    "glm ucb": lambda: GLMUCB(movies(Bernoulli())),
    "uniform": lambda: UniformRandom(movies()),
    "nuts": lambda: ThompsonSampling(Nuts(movies(), chains=3, target_accept=0.9)),
    "svi": lambda: ThompsonSampling(Svi(movies(Bernoulli()), guide="mean_field")),
}


def written(policy):
    """A description as it comes out of a file, and the arrays in NumPy."""
    arrays = {name: np.asarray(array) for name, array in named_arrays(policy).items()}
    return json.loads(json.dumps(encode(policy))), arrays


def assert_same_structure(found, policy):
    assert jax.tree.structure(found) == jax.tree.structure(policy)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(policy), strict=True):
        # The numbers of a distribution may be Python's or NumPy's own.
        assert (a.shape, a.dtype) == (np.shape(b), jnp.asarray(b).dtype)


@pytest.mark.parametrize("name", POLICIES)
def test_there_and_back(name):
    policy = POLICIES[name]()
    node, arrays = written(policy)
    assert foreign_parts(node) == []
    assert_same_structure(rebuild(node, arrays), policy)
    assert_same_structure(rebuild(node, arrays, donor=policy), policy)


def test_what_was_declared_is_in_the_arrays():
    """No name in a description is without its array, also under a path."""
    policy = POLICIES["closed form"]()
    names = set(named_arrays({"policy": policy}))
    text = json.dumps(encode(policy, "['policy']"))
    assert "['policy'].backend.hierarchy.levels[2].parents['genre']" in text
    assert "['policy'].backend.hierarchy.levels[2].parents['studio'].values" in text
    found = {inner for inner in names if json.dumps(inner)[1:-1] in text}
    assert len(found) == text.count('"array"') == 10


def own_link(u):
    return jnp.arctan(u)


def by_hand(contexts, actions, rewards=None):
    theta = numpyro.sample("action", dist.Normal(0, 1).expand([3, 2]).to_event(2))
    mean = jnp.sum(contexts * theta[actions], -1)
    with numpyro.plate("rows", len(contexts)):
        numpyro.sample("reward", dist.Normal(mean, 1.0), obs=rewards)


def learned(scale) -> Hierarchy:
    return Hierarchy([Level("action", 3, scale=scale)], Gaussian(dist.HalfNormal(1.0)), 2)


LAWS = {
    "a number": lambda: dist.HalfNormal(jnp.float32(2.0)),
    "many": lambda: dist.LogNormal(jnp.zeros(2), 0.5),
    "expanded": lambda: dist.HalfCauchy(1.0).expand([3, 1]),
    "one event": lambda: dist.Gamma(2.0, 3.0).expand([2]).to_event(1),
}


@pytest.mark.parametrize("kind", [Nuts, Collapsed])
@pytest.mark.parametrize("law", LAWS)
def test_learned_numbers_there_and_back(law, kind):
    """Scales and noise that are learned are read back with their laws."""
    policy = ThompsonSampling(kind(learned(LAWS[law]())))
    node, arrays = written(policy)
    assert foreign_parts(node) == []
    found = rebuild(node, arrays)
    assert_same_structure(found, policy)
    other = ThompsonSampling(kind(learned(dist.HalfNormal(0.25))))
    assert fingerprint(policy) != fingerprint(other)
    assert fingerprint(policy) == fingerprint(ThompsonSampling(kind(learned(LAWS[law]()))))


FOREIGN = {
    "own_link": lambda: ThompsonSampling(Laplace(nonlinear(WEIGHTS, 2, link=own_link))),
    "by_hand": lambda: ThompsonSampling(Nuts(by_hand, dim=2)),
    "Weibull": lambda: ThompsonSampling(
        Nuts(Hierarchy([Level("action", 3, scale=dist.Weibull(1.0, 2.0))], Gaussian(), 2))
    ),
    "LKJCovariance": lambda: ThompsonSampling(
        Nuts(Hierarchy([Level("action", 3, cov=models.LKJCovariance(2))], Gaussian(), 2))
    ),
    "Kumaraswamy": lambda: ThompsonSampling(
        Nuts(
            Hierarchy(
                [
                    Level(
                        "action",
                        3,
                        kernel=models.AR1(dist.Kumaraswamy(2.0, 2.0)),
                        scale=[0.5, dist.HalfNormal(1.0)],
                    )
                ],
                Gaussian(),
                2,
            )
        )
    ),
    "Laplace": lambda: ThompsonSampling(
        Svi(
            Hierarchy(
                [
                    Level("effect", 2),
                    Level("action", 3, parents={"effect": dist.Laplace(jnp.zeros((3, 2)), 1.0)}),
                ],
                Gaussian(dist.HalfNormal(1.0)),
                2,
            )
        )
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_a_file_cannot_hold_is_handed_in(name):
    policy = FOREIGN[name]()
    node, arrays = written(policy)
    assert any(part.endswith(name) for part in foreign_parts(node))
    with pytest.raises(AgentFileError, match=rf"cannot hold: .*{name}.*policy="):
        rebuild(node, arrays)
    assert_same_structure(rebuild(node, arrays, donor=policy), policy)
    with pytest.raises(AgentFileError, match="is not where it was"):
        rebuild(node, arrays, donor=POLICIES["closed form"]())


def variants():
    """Policies that differ in one thing each."""
    yield ThompsonSampling(ClosedForm(movies_of(0.5)))
    yield ThompsonSampling(ClosedForm(movies_of(0.5000001)))
    yield ThompsonSampling(ClosedForm(movies_of(0.5, name="film")))
    yield ThompsonSampling(ClosedForm(movies_of(0.5, dim=3)))
    yield ThompsonSampling(ClosedForm(movies_of(0.5, size=5)))
    yield ThompsonSampling(Factored(movies_of(0.5)))
    yield ThompsonSampling(Factored(movies_of(0.5), means="joint"))
    yield LinUCB(movies_of(0.5))
    yield LinUCB(movies_of(0.5), horizon=10)
    yield ThompsonSampling(Laplace(nonlinear(WEIGHTS, 2)))
    yield ThompsonSampling(Laplace(nonlinear(WEIGHTS, 2, link=jnp.tanh)))
    yield ThompsonSampling(Laplace(nonlinear(WEIGHTS, 2, link=own_link)))


def movies_of(cov, name="movie", dim=2, size=4):
    movie = Level(name, size, parents={"genre": np.ones((size, 2))}, cov=cov)
    return Hierarchy([Level("genre", 2), movie], Gaussian(), dim)


def test_fingerprints_tell_policies_apart(x64):
    once, again = ([fingerprint(policy) for policy in variants()] for _ in range(2))
    assert once == again
    assert len(set(once)) == len(once)
    with jax.enable_x64(False):
        assert fingerprint(next(variants())) not in once


def paths(node, path=()):
    yield path
    parts = node.items() if isinstance(node, dict) else ()
    parts = enumerate(node) if isinstance(node, list) else parts
    for key, part in parts:
        yield from paths(part, (*path, key))


@pytest.mark.parametrize("junk", [None, -1, 10**30, "os.system", [], {"class": "Level"}])
def test_no_description_does_harm(junk):
    """Junk in any place gives a policy or mixts's own error, and takes no memory."""
    node, arrays = written(ThompsonSampling(ClosedForm(movies_of(0.5))))
    refused = 0
    places = list(paths(node))[1:]
    for *way, last in places:
        spoilt = copy.deepcopy(node)
        inner = spoilt
        for key in way:
            inner = inner[key]
        inner[last] = junk
        try:
            rebuild(spoilt, arrays)
        except AgentFileError:
            refused += 1
    assert refused > len(places) / 3


@pytest.mark.parametrize(
    "node",
    [
        {"class": "eval", "arguments": {}},
        {"class": "ThompsonSampling", "arguments": {"backend": {"function": "os.system"}}},
        {"class": "Level", "arguments": {"name": "x", "size": 2, "__class__": 1}},
        {"function": "jax.nn.sigmoid", "extra": 1, "class": 3},
        {"float": "0x1p99999"},
        {"array": "nowhere"},
    ],
)
def test_only_what_is_listed_is_made(node):
    policy = {"class": "ThompsonSampling", "arguments": {"backend": node}}
    with pytest.raises(AgentFileError, match="not sound"):
        rebuild(policy, {})


def test_numbers_are_checked_like_a_users():
    node, arrays = written(ThompsonSampling(ClosedForm(movies_of(0.5))))
    name = ".backend.hierarchy.levels[1].cov"
    with pytest.raises(AgentFileError, match="every variance must be positive"):
        rebuild(node, arrays | {name: np.float32(-1.0)})


@pytest.mark.parametrize(
    ("package", "kind"),
    [(bandit, Policy), (inference, Backend), (models, Reward), (models, Kernel)],
)
def test_no_public_class_is_forgotten(package, kind):
    """A file holds whatever is declared with public classes alone."""
    public = (thing for thing in vars(package).values() if inspect.isclass(thing))
    declared = {c.__name__ for c in public if issubclass(c, kind) and not inspect.isabstract(c)}
    assert declared <= CLASSES.keys()
