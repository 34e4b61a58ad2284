"""The density that approximate backends aim at is NumPyro's, on the observations alone."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer.util import log_density

from mistakes import as_a_user, cases, check_refused
from mixts.inference import Nuts, Svi
from mixts.inference.buffer import Buffer, empty
from mixts.inference.programs.target import Target, as_target
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Poisson, glm
from sampling import common_taste, unoptimised
from tolerance import tolerance

K, L, D, ROWS, BLANK = 4, 3, 2, 6, 3
WEIGHTS = np.random.default_rng(0).normal(size=(K, L))


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


# Hierarchies and programs ------------------------------------------------------------------------


def declared(reward=None, effect=None, **action) -> Hierarchy:
    action = {"parents": {"genre": WEIGHTS}} | action
    levels = [Level("genre", L, **(effect or {})), Level("movie", K, **action)]
    return Hierarchy(levels, reward or Gaussian(0.7), D)


HIERARCHIES = {
    "known": lambda: declared(),
    "learned scale": lambda: declared(scale=dist.HalfNormal(2.0)),
    "learned scale, not centred": lambda: declared(scale=dist.HalfNormal(2.0), centered=False),
    "joint effects, not centred": lambda: declared(
        effect={"cov": np.eye(L * D) + 0.5, "centered": False}, cov=np.array([0.5, 2.0])
    ),
    "learned weights and noise": lambda: declared(
        Gaussian(dist.LogNormal(0.0, 0.5)),
        parents={"genre": dist.Dirichlet(np.full((K, L), 2.0))},
    ),
    "Bernoulli": lambda: declared(Bernoulli()),
    "Poisson": lambda: declared(Poisson(), scale=dist.Gamma(2.0, 2.0)),
}


def _movies():
    """Four movies whose spread is unknown, and the noise of a reward."""
    spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    with numpyro.plate("movies", K):
        movies = numpyro.sample("movie", dist.Normal(0.0, spread).expand([D]).to_event(1))
    return movies, numpyro.sample("noise", dist.Uniform(0.1, 2.0))


def without_mask(contexts, actions, rewards=None):
    movies, noise = _movies()
    mean = jnp.sum(contexts * movies[actions], axis=-1)
    numpyro.sample("reward", dist.Normal(mean, noise), obs=rewards)


def with_mask(contexts, actions, rewards=None, mask=None):
    movies, noise = _movies()
    mean = jnp.sum(contexts * movies[actions], axis=-1)
    plate = numpyro.plate("observation", contexts.shape[0])
    with plate, handlers.mask(mask=True if mask is None else mask):
        numpyro.sample("reward", dist.StudentT(4.0, mean, noise), obs=rewards)


def same_law_for_all(contexts, actions, rewards=None):
    """The law has no batch shape of its own; NumPyro spreads it over the rewards."""
    movies, noise = _movies()
    numpyro.sample("reward", dist.Normal(movies[0, 0], noise), obs=rewards)


def unit_contexts(contexts, actions, rewards=None):
    """Divides by the length of a context, which must not be zero where there is none."""
    movies, noise = _movies()
    directions = contexts / jnp.linalg.norm(contexts, axis=-1, keepdims=True)
    mean = jnp.sum(directions * movies[actions], axis=-1) + jnp.log(contexts**2).sum(-1)
    numpyro.sample("reward", dist.Normal(mean, noise), obs=rewards)


def positive_movies(contexts, actions, rewards=None):
    movies = numpyro.sample("movie", dist.HalfNormal(1.0).expand([K, D]).to_event(2))
    mean = jnp.sum(contexts * movies[actions], axis=-1)
    numpyro.sample("reward", dist.Normal(mean, 1.0), obs=rewards)


PROGRAMS = {
    program.__name__: program
    for program in (without_mask, with_mask, same_law_for_all, unit_contexts)
}


targets = pytest.mark.parametrize("name", [*HIERARCHIES, *PROGRAMS])


class Made(NamedTuple):
    target: Target
    program: Callable[..., Any]  # what stands behind it
    potential: Callable[..., Any]  # with its gradient, compiled
    start: Callable[..., Any]
    sites: Callable[..., Any]


@functools.cache
def make(name: str) -> Made:
    """The target of that name; all its tests are in float64 and share what is compiled."""
    if name in HIERARCHIES:
        hierarchy = HIERARCHIES[name]()
        target, program = as_target(hierarchy, "action", None, "Nuts"), hierarchy.program
    else:
        program = PROGRAMS[name]
        target = as_target(program, "movie", D, "Nuts")
    potential = jax.jit(jax.value_and_grad(target.potential))
    return Made(target, program, potential, jax.jit(target.start), jax.jit(target.sites))


# Observations ------------------------------------------------------------------------------------


def observations(name: str, n: int = ROWS):
    rng = np.random.default_rng(1)
    if name in ("Bernoulli", "Poisson"):
        rewards = rng.integers(0, 2, n).astype(float)
    else:
        rewards = rng.normal(size=n)
    return rng.normal(size=(n, D)), rng.integers(0, K, n), rewards


def padded(seen, blank: int = BLANK, context=0.0, action=-1, reward=0.0) -> Buffer:
    """The rows, and `blank` more that hold the given numbers."""
    contexts, actions, rewards = seen
    return Buffer(
        jnp.asarray(np.concatenate([contexts, np.full((blank, D), context)])),
        jnp.asarray(np.concatenate([actions, np.full(blank, action)]), jnp.int32),
        jnp.asarray(np.concatenate([rewards, np.full(blank, reward)])),
        jnp.asarray(len(rewards), jnp.int32),
    )


def assert_same(found, expected) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance()), found, expected)


def numpyro_potential(program, seen):
    """Minus NumPyro's log density in the unconstrained space, put together from its parts."""
    trace = handlers.trace(handlers.seed(program, jax.random.key(0))).get_trace(*seen)
    transforms = {
        name: biject_to(site["fn"].support)
        for name, site in trace.items()
        if site["type"] == "sample" and not site["is_observed"]
    }

    def potential(position):
        assert set(position) == set(transforms)
        values = {name: transforms[name](z) for name, z in position.items()}
        jacobian = sum(
            transforms[name].log_abs_det_jacobian(z, values[name]).sum()
            for name, z in position.items()
        )
        return -log_density(program, seen, {}, values)[0] - jacobian

    return potential


class TestPotential:
    """In float64, where sums in another order differ by 1e-15 and all else is a mistake."""

    @targets
    def test_is_numpyros_log_density(self, name, x64):
        made, seen = make(name), observations(name)
        buffer = padded(seen)
        expected = jax.jit(jax.value_and_grad(numpyro_potential(made.program, seen)))
        position = made.start(jax.random.key(2), buffer)
        for shift in (0.0, 0.5):
            moved = {site: z + shift for site, z in position.items()}
            assert_same(made.potential(moved, buffer), expected(moved))

    @targets
    def test_blank_rows_may_hold_anything(self, name, x64):
        """Neither the density nor its gradient sees them."""
        made, seen = make(name), observations(name)
        position = made.start(jax.random.key(3), padded(seen))
        expected = made.potential(position, padded(seen))
        for row in ((np.nan, -1, np.nan), (np.inf, -7, -np.inf), (1e30, -1, 1e30)):
            assert_same(made.potential(position, padded(seen, BLANK, *row)), expected)

    @pytest.mark.parametrize("name", ["Bernoulli", "unit_contexts"])
    def test_blank_rows_outside_jit(self, name, x64):
        """Where values are known, rows that count for nothing are not refused either."""
        made, seen = make(name), observations(name)
        position = made.start(jax.random.key(3), padded(seen))
        found = made.target.potential(position, padded(seen, BLANK, np.nan, -7, -np.inf))
        assert_same(found, made.potential(position, padded(seen))[0])

    @pytest.mark.parametrize("name", ["learned scale", "with_mask"])
    def test_every_row_counts(self, name, x64):
        """What the tests above could not tell: a potential that ignored the rows altogether."""
        made = make(name)
        contexts, actions, rewards = observations(name)
        buffer = padded((contexts, actions, rewards))
        position = made.start(jax.random.key(4), buffer)
        before, _ = made.potential(position, buffer)
        for row in range(ROWS):
            other = rewards + 3.0 * (np.arange(ROWS) == row)
            after, _ = made.potential(position, padded((contexts, actions, other)))
            assert abs(float(after - before)) > 1e-3, row

    def test_an_empty_buffer_is_the_prior(self, x64):
        made = make("known")
        position = {"genre": jnp.ones((L, D)), "movie": jnp.ones((K, D))}
        nothing = np.zeros((0, D)), np.zeros(0, int), np.zeros(0)
        found, _ = made.potential(position, padded(nothing, ROWS + BLANK))
        location = WEIGHTS.sum(1, keepdims=True)
        squares = L * D + D * np.sum((1.0 - location) ** 2)
        expected = 0.5 * squares + 0.5 * (L + K) * D * np.log(2 * np.pi)
        np.testing.assert_allclose(found, expected, **tolerance())


class TestSites:
    @targets
    def test_there_and_back(self, name, x64):
        """A position gives values in the support of each site, and the values give the position."""
        made, seen = make(name), observations(name)
        buffer = padded(seen)
        position = made.start(jax.random.key(5), buffer)
        sites = made.sites(position, buffer)
        trace = handlers.trace(handlers.seed(made.program, jax.random.key(0))).get_trace(*seen)
        latent = {n for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        assert set(position) == latent
        for site, z in position.items():
            support = trace[site]["fn"].support
            assert np.all(support(sites[site])), site
            back = biject_to(support).inv(sites[site])
            np.testing.assert_allclose(back, z, **tolerance(loosen=100))  # simplexes lose digits

    def test_vectors_of_a_level_that_is_not_centred(self, x64):
        made, buffer = make("learned scale, not centred"), padded(observations("known"))
        position = made.start(jax.random.key(6), buffer)
        assert set(position) == {"genre", "movie_base", "movie_scale"}
        vectors = made.target.vectors(position, buffer)
        assert list(vectors) == ["genre", "movie"]
        spread = np.exp(position["movie_scale"])
        expected = WEIGHTS @ vectors["genre"] + spread * position["movie_base"]
        np.testing.assert_allclose(vectors["movie"], expected, **tolerance())

    def test_vectors_of_a_program_by_hand(self, x64):
        target = as_target(common_taste, "movie", 2, "Svi")
        assert (target.num_actions, target.dim) == (5, 2)
        assert target.levels == ("taste", "own", "movie"), "every site of vectors, actions last"
        rng = np.random.default_rng(7)
        shapes = {"taste": (1, 2), "own": (5, 2)}
        position = {site: jnp.asarray(rng.normal(size=shape)) for site, shape in shapes.items()}
        vectors = target.vectors(position, padded(observations("known")))
        expected = position["taste"] + 0.7 * position["own"]
        np.testing.assert_allclose(vectors["movie"], expected, **tolerance())

    def test_starts_are_draws_of_the_prior(self, x64):
        """4,000 of them: mean and deviation of each number within 4 standard errors.

        The mean of n draws has the error sd / sqrt(n), their deviation sqrt((kurtosis - 1) / 4n) sd:
        the prior of a movie is a scale mixture of normals, of kurtosis at most 9.
        """
        n, buffer, target = 4000, padded(observations("known")), make("learned scale").target

        @jax.jit
        def draw(keys):
            return jax.vmap(lambda k: target.sites(target.start(k, buffer), buffer))(keys)

        sites = draw(jax.random.split(jax.random.key(8), n))
        spread = np.sqrt(np.sum(WEIGHTS**2, axis=1, keepdims=True) + 4.0)  # E scale^2 = 2^2
        for site, mean, sd in (
            ("movie_scale", 2.0 * np.sqrt(2 / np.pi), 2.0 * np.sqrt(1 - 2 / np.pi)),
            ("genre", 0.0, 1.0),
            ("movie", 0.0, spread),
        ):
            found = np.asarray(sites[site])
            assert np.all(np.abs(found.mean(0) - mean) < 4 * sd / np.sqrt(n)), site
            assert np.all(np.abs(found.std(0) / sd - 1) < 4 * np.sqrt(8 / (4 * n))), site

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("known", {"genre", "movie"}),
            ("learned scale, not centred", {"genre"}),
            ("joint effects, not centred", {"movie"}),
            ("without_mask", {"movie"}),
        ],
    )
    def test_plain_levels(self, name, expected, x64):
        """Those of which a vector is its own unconstrained position."""
        made, buffer = make(name), padded(observations(name))
        assert set(made.target.plain_levels(buffer)) == expected
        position = made.start(jax.random.key(10), buffer)
        vectors = made.target.vectors(position, buffer)
        for level in expected:
            np.testing.assert_array_equal(vectors[level], position[level])

    def test_a_level_of_positive_vectors_is_not_plain(self):
        """Its unconstrained position is a logarithm."""
        target = as_target(positive_movies, "movie", D, "Nuts")
        assert target.plain_levels(padded(observations("known"))) == ()

    def test_unknowns_are_the_sites_a_user_knows(self, x64):
        name = "learned scale, not centred"
        made, buffer = make(name), padded(observations(name))
        position = made.start(jax.random.key(11), buffer)
        assert "movie_base" in position
        found, sites = made.target.unknowns(position, buffer), made.sites(position, buffer)
        assert set(found) == {"genre", "movie", "movie_scale"}
        assert_same(found, {site: sites[site] for site in found})

    def test_moments(self, x64):
        """130 positions: more than are worked on at a time, and not a multiple of it."""
        target, buffer = make("learned scale, not centred").target, padded(observations("known"))

        @jax.jit
        def moments(keys):
            positions = jax.vmap(lambda k: target.start(k, buffer))(keys)
            draws = jax.vmap(lambda z: target.vectors(z, buffer))(positions)
            return draws, *target.moments(positions, buffer)

        draws, mean, cov = moments(jax.random.split(jax.random.key(9), 130))
        for name, size in (("genre", L), ("movie", K)):
            np.testing.assert_allclose(mean[name], np.mean(draws[name], axis=0), **tolerance())
            assert cov[name].shape == (size, D, D)
            for i in range(size):
                expected = np.cov(np.asarray(draws[name])[:, i].T)
                np.testing.assert_allclose(cov[name][i], expected, **tolerance())


# Refusals ----------------------------------------------------------------------------------------


def no_reward(contexts, actions, rewards=None):
    _movies()


def reward_not_observed(contexts, actions, rewards=None):
    movies, noise = _movies()
    numpyro.sample("reward", dist.Normal(jnp.sum(contexts * movies[actions], -1), noise))


def reward_not_sampled(contexts, actions, rewards=None):
    movies, _ = _movies()
    numpyro.deterministic("reward", jnp.sum(contexts * movies[actions], -1))


def rewards_as_one_event(contexts, actions, rewards=None):
    movies, noise = _movies()
    law = dist.Normal(jnp.sum(contexts * movies[actions], -1), noise)
    numpyro.sample("reward", law.to_event(1), obs=rewards)


def discrete_unknown(contexts, actions, rewards=None):
    movies, noise = _movies()
    shift = numpyro.sample("shift", dist.Bernoulli(0.5))
    law = dist.Normal(jnp.sum(contexts * movies[actions], -1) + shift, noise)
    numpyro.sample("reward", law, obs=rewards)


def fails(contexts, actions, rewards=None):
    raise KeyError("ratings.csv")


def flat_actions(contexts, actions, rewards=None):
    movies = numpyro.sample("movie", dist.Normal(0.0, 1.0).expand([K]).to_event(1))
    numpyro.sample("reward", dist.Normal(movies[actions], 1.0), obs=rewards)


REFUSED = {
    "not callable": (lambda: Nuts(3), TypeError, ["Nuts: got 3", "expected a Hierarchy"]),
    "nothing": (lambda: Svi(None), TypeError, ["Svi: got None", "a NumPyro program"]),
    "no dim": (
        lambda: Nuts(without_mask, "movie"),
        ValueError,
        ["Nuts: a program written by hand needs dim=", "Nuts(program, dim=2, actions='movie')"],
    ),
    "bad dim": (
        lambda: Svi(without_mask, "movie", 0),
        ValueError,
        ["Svi dim: got 0", "a whole number of at least 1"],
    ),
    "wrong dim": (
        lambda: Nuts(without_mask, "movie", 3),
        ValueError,
        ["Nuts: program(contexts (n, 3), actions (n,), rewards (n,)) fails"],
    ),
    "no action site": (
        lambda: Nuts(without_mask, dim=D),
        ValueError,
        [f"no site 'action' of shape (K, {D})", f"'movie': ({K}, {D})", "actions=..."],
    ),
    "action site of another shape": (
        lambda: Svi(flat_actions, "movie", D),
        ValueError,
        [f"Svi: the program has no site 'movie' of shape (K, {D})", f"'movie': ({K},)"],
    ),
    "no reward": (
        lambda: Nuts(no_reward, "movie", D),
        ValueError,
        ["Nuts: the program has no site 'reward'; it has ['movie', 'noise', 'spread']"],
    ),
    "reward not observed": (
        lambda: Nuts(reward_not_observed, "movie", D),
        ValueError,
        ["Nuts: the program's site 'reward' is not observed", "obs=rewards"],
    ),
    "reward not sampled": (
        lambda: Svi(reward_not_sampled, "movie", D),
        ValueError,
        ["Svi: the program's site 'reward' is not observed"],
    ),
    "rewards as one event": (
        lambda: Nuts(rewards_as_one_event, "movie", D),
        ValueError,
        ["batch shape () and event shape (2,)", "one law for each observation"],
    ),
    "discrete unknown": (
        lambda: Svi(discrete_unknown, "movie", D),
        ValueError,
        ["Svi: the program's site 'shift' is discrete", "sum it out"],
    ),
    "program fails": (
        lambda: Nuts(fails, "movie", D),
        ValueError,
        ["Nuts: program(contexts (n, 2), actions (n,), rewards (n,)) fails", "ratings.csv"],
    ),
}


@cases(target=REFUSED)
def test_refused(declare, error, parts):
    check_refused(declare, error, parts)


def test_the_cause_of_a_failure_is_kept():
    with as_a_user(), pytest.raises(ValueError, match="fails") as failure:
        Nuts(fails, "movie", D)
    assert isinstance(failure.value.__cause__, KeyError)


def test_the_density_reads_all_rows_there_is_room_for():
    """A step of chains or of a guide costs in proportion to them, as the page on agents says."""
    target = Target(hierarchy=glm([[1.0], [0.5]], dim=D))

    def operations(room):
        buffer = empty(room, D, exposure=target.takes_exposure)
        position = target.start(jax.random.key(0), buffer)
        slope = jax.jit(jax.grad(target.potential)).lower(position, buffer).compile()
        return slope.cost_analysis()["flops"]

    small, large = operations(1024), operations(16 * 1024)
    assert 12 < large / small <= 16
