"""MovieLens: ratings read and shipped, their factors, and the bandit that is made of them."""

import stat
from functools import cache
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import as_a_user, cases, check_refused
from mixts.bandit import LinTS, MovieLensProblem, ThompsonSampling, movielens_tables, simulate
from mixts.bandit.policies.baselines import prior_moments
from mixts.bandit.problems import factorise
from mixts.bandit.problems.factorise import Factors, cached_factors, factors_folder
from mixts.bandit.problems.factorise import factorise as factors_of
from mixts.bandit.problems.pack_movielens import pack
from mixts.bandit.problems.ratings import (
    SHIPPED,
    Ratings,
    as_ratings,
    read_ratings,
    shipped_ratings,
)
from mixts.inference import ClosedForm, Laplace
from mixts.models import Bernoulli, Gaussian
from tolerance import tolerance

QUICK = {"dim": 3, "num_effects": 3, "min_ratings": 30, "sweeps": 5}


@cache
def problem(**changes) -> MovieLensProblem:
    return MovieLensProblem(**{"num_actions": 20, **QUICK, **changes})


@cache
def small() -> Ratings:
    """Ratings of 30 movies by 40 users, of rank two and without noise, three quarters of them known."""
    rng = np.random.default_rng(0)
    table = 3 + rng.uniform(-1, 1, (40, 2)) @ rng.uniform(-1, 1, (2, 30))
    user, movie = np.nonzero(rng.random(table.shape) < 0.75)
    return as_ratings(user + 1, 10 * movie, table[user, movie], {})


def products(factors: Factors, ratings: Ratings) -> np.ndarray:
    return np.sum(factors.users[ratings.user] * factors.movies[ratings.movie], axis=1)


# Ratings


def test_what_is_shipped():
    ratings = shipped_ratings()
    assert len(ratings.stars) == len(ratings.user) == len(ratings.movie) == 100_836
    assert len(ratings.user_ids) == 610
    assert len(ratings.movie_ids) == len(set(ratings.titles)) == 9_724
    assert set(ratings.stars.tolist()) == set(np.arange(0.5, 5.5, 0.5).tolist())
    assert np.bincount(ratings.user).min() == 20  # as the data set's README says
    assert ratings.titles[0] == "Toy Story (1995)"
    assert "Misérables, Les (1995)" in ratings.titles
    assert (ratings.user[0], ratings.movie[0], ratings.stars[0]) == (0, 0, 4.0)
    np.testing.assert_allclose(ratings.stars.mean(), 3.501557, atol=1e-6)
    assert SHIPPED.stat().st_size < 1_500_000
    readme = (SHIPPED.parent / "README.md").read_text()
    assert "these same license conditions" in readme.replace("\n>   ", " ")
    assert "10.1145/2827872" in readme


def as_csv(folder: Path, extra: str = "") -> Path:
    """The shipped data in the form that GroupLens publishes them in."""
    ratings = shipped_ratings()
    with np.load(SHIPPED) as data:
        names, genres = (bytes(data[part]).decode().split("\n") for part in ("titles", "genres"))
    columns = ratings.user_ids[ratings.user], ratings.movie_ids[ratings.movie], ratings.stars
    lines = [f"{u},{m},{s},964982703\n" for u, m, s in zip(*columns, strict=True)]
    (folder / "ratings.csv").write_text(
        "userId,movieId,rating,timestamp\n" + "".join(lines) + extra
    )
    titles = [
        f'{number},"{title.replace(chr(34), 2 * chr(34))}",{kinds}\n'
        for number, title, kinds in zip(ratings.movie_ids, names, genres, strict=True)
    ]
    (folder / "movies.csv").write_text("movieId,title,genres\n" + "".join(titles), "utf-8")
    return folder


def test_tables_are_those_of_the_ratings():
    movies, rows = movielens_tables()
    ratings = shipped_ratings()
    np.testing.assert_array_equal(rows["movieId"], ratings.movie_ids[ratings.movie])
    np.testing.assert_array_equal(rows["rating"], ratings.stars)
    heat = movies[movies["title"] == "Heat (1995)"]
    assert heat["genres"].item() == "Action|Crime|Thriller"
    assert rows["movieId"].isin(movies["movieId"]).all()


def test_packing_gives_what_is_shipped(tmp_path):
    """Also from a copy to which ratings were appended after the data set was made."""
    folder = as_csv(tmp_path, "611,1,5.0,1544527023\n614,1,0.0,1544706141\n")
    pack(folder, tmp_path / "packed.npz")
    with np.load(tmp_path / "packed.npz") as packed, np.load(SHIPPED) as shipped:
        assert set(packed) == set(shipped)
        for name in shipped:
            np.testing.assert_array_equal(packed[name], shipped[name])


def test_packing_refuses_another_data_set(tmp_path):
    folder = as_csv(tmp_path, "611,1,5.0,964982703\n")
    with pytest.raises(ValueError, match=r"100837, 611, 9724.*100836, 610, 9724"):
        pack(folder, tmp_path / "packed.npz")
    assert not (tmp_path / "packed.npz").exists()


def test_the_csv_of_the_shipped_data_reads_as_the_shipped_data(tmp_path):
    read, shipped = read_ratings(as_csv(tmp_path)), shipped_ratings()
    for one, other in zip(read, shipped, strict=True):
        np.testing.assert_array_equal(one, other)


ONE_M = "7::661::3::978302109\n7::914::5::978301968\n2::661::1::978300275\n"
LATEST = "userId,movieId,rating,timestamp\n7,661,3.5,964982703\n7,914,5.0,964981247\n2,661,0.5,964982224\n"


@pytest.mark.parametrize(("name", "text", "low"), [("dat", ONE_M, 1.0), ("csv", LATEST, 0.5)])
@pytest.mark.parametrize("as_folder", [True, False])
def test_both_formats(tmp_path, name, text, low, as_folder):
    file = tmp_path / f"ratings.{name}"
    file.write_text(text)
    ratings = read_ratings(tmp_path if as_folder else str(file))
    assert ratings.user_ids.tolist() == [2, 7]
    assert ratings.movie_ids.tolist() == [661, 914]
    assert ratings.user.tolist() == [1, 1, 0]
    assert ratings.movie.tolist() == [0, 1, 0]
    assert ratings.stars.tolist() == [3.5 if name == "csv" else 3.0, 5.0, low]
    assert ratings.titles == ("movie 661", "movie 914")


def test_titles(tmp_path):
    """In Latin-1 with MovieLens 1M, in UTF-8 and quoted with the others; never twice the same."""
    (tmp_path / "ratings.dat").write_text(ONE_M)
    (tmp_path / "movies.dat").write_bytes(
        "661::Amélie (2001)::A|B\n9::Other::A\n".encode("latin-1")
    )
    assert read_ratings(tmp_path).titles == ("Amélie (2001)", "movie 914")
    (tmp_path / "ratings.csv").write_text(LATEST)
    text = 'movieId,title,genres\n661,"Amélie, or so (2001)",A\n914,"Amélie, or so (2001)",B\n'
    (tmp_path / "movies.csv").write_text(text, "utf-8")
    titles = read_ratings(tmp_path / "ratings.csv").titles
    assert titles == ("Amélie, or so (2001) [661]", "Amélie, or so (2001) [914]")


DAMAGED = {
    "cut off": ("dat", ONE_M + "2::91", "line 4"),
    "not a number": ("csv", LATEST.replace("914", "?"), "line 3"),
    "cut off before the time": ("csv", LATEST + "7,915,1.0,", "line 5"),
    "an id too long for a number": ("csv", LATEST + f"7,{'9' * 400},1.0,5\n", "line 5"),
    "an id that others would be taken for": ("csv", LATEST + f"7,{2**53 + 1},1.0,5\n", "line 5"),
    "an id below zero": ("dat", ONE_M + "-7::915::1::5\n", "line 4"),
    "no header": (
        "csv",
        LATEST.partition("\n")[2],
        "line 1: ['7', '661', '3.5', '964982703'] where",
    ),
    "no rating": ("csv", LATEST.replace("0.5", ""), "line 4"),
    "off the scale": ("csv", LATEST.replace("0.5", "0.0"), "line 4: a rating of 0"),
    "NaN": ("csv", LATEST.replace("0.5", "nan"), "line 4: a rating of nan"),
    "twice": ("csv", LATEST + "7,914,1.0,5\n", "line 5: a second rating of movie 914 by user 7"),
    "another format": ("dat", LATEST, "line 1"),
    "no ratings": ("csv", "userId,movieId,rating,timestamp\n", "no ratings"),
    "empty": ("dat", "", "no ratings"),
    "not text": ("csv", b"\x89PNG\r\n\x1a\n\xff\xfe", "cannot be read"),
    "one long line": ("dat", b"\xff" * 10_000, "... is not"),
}


@pytest.mark.parametrize("mistake", DAMAGED)
def test_damaged_files_are_refused_in_a_line(tmp_path, mistake):
    kind, text, found = DAMAGED[mistake]
    file = tmp_path / f"ratings.{kind}"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match="expected lines of") as failure:
        MovieLensProblem(file)
    message = str(failure.value)
    assert str(file) in message
    assert found in message
    assert "download" in message
    assert "\n" not in message
    assert len(message) - len(str(file)) < 500


def test_damaged_titles_are_refused(tmp_path):
    (tmp_path / "ratings.csv").write_text(LATEST)
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n661\n")
    with pytest.raises(ValueError, match=r"movies\.csv', line 2: .*movieId,title,genres"):
        read_ratings(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", ".", "u.data"])
def test_missing_files_are_refused_in_a_line(tmp_path, name):
    (tmp_path / "u.data").write_text("1\t2\t3\t4")
    with pytest.raises(FileNotFoundError, match=r"expected ratings\.dat .* download") as failure:
        MovieLensProblem(tmp_path / name)
    assert str(tmp_path / name) in str(failure.value)


def test_damaged_shipped_data_say_so(tmp_path, monkeypatch):
    for content in (None, b"", SHIPPED.read_bytes()[:20_000]):
        file = tmp_path / "shipped.npz"
        if content is not None:
            file.write_bytes(content)
        monkeypatch.setattr("mixts.bandit.problems.ratings.SHIPPED", file)
        with pytest.raises(
            OSError, match=r"shipped with mixts cannot be read.*install mixts again"
        ):
            shipped_ratings()


# Factors


def test_every_sweep_lowers_the_objective():
    for ratings in (small(), shipped_ratings()):
        objective = factors_of(ratings, 3, sweeps=6).objective
        assert (np.diff(objective) < 0).all()


def test_a_side_is_a_ridge_regression_for_each_of_its_members():
    ratings = small()
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(len(ratings.stars), 4))
    found = factorise._ridge(factorise._grouped(ratings.movie), inputs, ratings.stars, 0.7)
    for movie in (0, 11, 29):
        own = ratings.movie == movie
        rows = np.vstack([inputs[own], np.sqrt(0.7) * np.eye(4)])
        values = np.append(ratings.stars[own], np.zeros(4))
        np.testing.assert_allclose(found[movie], np.linalg.lstsq(rows, values)[0], rtol=1e-8)


def test_known_factors_are_recovered():
    """Without noise and nearly without penalty, ratings that were held out are known (sd: 0.4)."""
    ratings = small()
    held_out = np.arange(len(ratings.stars)) % 5 == 0
    known = as_ratings(
        ratings.user_ids[ratings.user[~held_out]],
        ratings.movie_ids[ratings.movie[~held_out]],
        ratings.stars[~held_out],
        {},
    )
    assert len(known.user_ids) == 40
    assert len(known.movie_ids) == 30
    factors = factors_of(
        known, 3, penalty=1e-3, sweeps=500
    )  # two, and one for what centring leaves
    rest = ratings._replace(user=ratings.user[held_out], movie=ratings.movie[held_out])
    predicted = factors.mean + products(factors, rest)
    np.testing.assert_allclose(predicted, ratings.stars[held_out], atol=0.02)


def test_the_form_of_the_factors_does_not_change_their_products():
    """The objective of the factors, brought to equal lengths, is that of the last sweep."""
    ratings, penalty = small(), 2.0
    factors = factors_of(ratings, 3, penalty=penalty, sweeps=300)
    gram = factors.movies.T @ factors.movies
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-8 * gram.max())
    assert (np.diff(np.diag(gram)) < 0).all()
    assert (factors.movies.sum(0) > 0).all()
    np.testing.assert_allclose(np.mean(np.sum(factors.users**2, axis=1)), 1.0)
    errors = ratings.stars - factors.mean - products(factors, ratings)
    lengths = 2 * np.sqrt(np.sum(factors.users**2) * np.sum(factors.movies**2))
    np.testing.assert_allclose(
        np.sum(errors**2) + penalty * lengths, factors.objective[-1], rtol=1e-6
    )


def test_ratings_that_are_all_the_same_have_no_vectors():
    same = small()._replace(stars=np.full_like(small().stars, 3.0))
    factors = factors_of(same, 2, sweeps=2)
    assert (factors.users == 0).all()
    assert (factors.movies == 0).all()
    assert factors.mean == 3.0


def test_factors_predict_ratings_that_were_held_out():
    """By a tenth better than the mean rating does; less so without centring."""
    ratings = shipped_ratings()
    held_out = np.random.default_rng(2).random(len(ratings.stars)) < 0.1
    seen = np.bincount(ratings.movie[~held_out], minlength=len(ratings.movie_ids)) > 0
    known = as_ratings(
        ratings.user[~held_out], ratings.movie[~held_out], ratings.stars[~held_out], {}
    )
    asked = held_out & seen[ratings.movie]
    rest = Ratings(
        ratings.user[asked],
        np.searchsorted(known.movie_ids, ratings.movie[asked]),
        ratings.stars[asked],
        *known[3:],
    )
    by_mean = np.sqrt(np.mean((rest.stars - known.stars.mean()) ** 2))

    def error(**changes) -> float:
        factors = factors_of(known, 5, sweeps=15, **changes)
        return np.sqrt(np.mean((rest.stars - factors.mean - products(factors, rest)) ** 2))

    assert error() < 0.9 * by_mean
    assert error() < 0.95 * error(centred=False)


def test_a_seed_gives_one_factorisation():
    first, again, other = (factors_of(small(), 2, sweeps=3, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.movies, again.movies)
    assert np.abs(first.movies - other.movies).max() > 1e-3


# What is kept on disk


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MIXTS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "factors"


def not_again(*_, **__):
    raise AssertionError("factorised again")


def test_factors_are_kept(folder, monkeypatch):
    first = cached_factors(small(), 2, sweeps=3)
    (file,) = folder.iterdir()  # and no half-written one
    assert file.suffix == ".npz"
    monkeypatch.setattr(factorise, "factorise", not_again)
    for one, other in zip(first, cached_factors(small(), 2, sweeps=3), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "changes", [{"penalty": 1.0}, {"centred": False}, {"sweeps": 4}, {"seed": 1}, {"dim": 3}]
)
def test_other_settings_are_other_files(folder, changes):
    cached_factors(small(), 2, sweeps=3)
    given = {"dim": 2, "sweeps": 3, **changes}
    expected = factors_of(small(), **given)
    np.testing.assert_array_equal(cached_factors(small(), **given).movies, expected.movies)
    assert len(list(folder.iterdir())) == 2


def test_another_numpy_makes_another_file(folder, monkeypatch):
    cached_factors(small(), 2, sweeps=2)
    monkeypatch.setattr(np, "__version__", "99")
    cached_factors(small(), 2, sweeps=2)
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("part", ["user", "movie", "stars"])
def test_other_ratings_are_another_file(folder, part):
    ratings = small()
    cached_factors(ratings, 2, sweeps=3)
    changed = getattr(ratings, part).copy()
    changed[[0, -1]] = changed[[-1, 0]]
    cached_factors(ratings._replace(**{part: changed}), 2, sweeps=3)
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "damage", ["empty", "cut off", "a byte", "another shape", "NaN", "a folder"]
)
def test_a_damaged_file_is_made_anew(folder, damage):
    expected = cached_factors(small(), 2, sweeps=3)
    (file,) = folder.iterdir()
    content = file.read_bytes()
    if damage == "empty":
        file.write_bytes(b"")
    elif damage == "cut off":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "a byte":
        where = content.index(expected.users.tobytes()) + 8
        file.write_bytes(content[:where] + bytes([content[where] ^ 1]) + content[where + 1 :])
    elif damage == "another shape":
        np.savez(file, **expected._replace(users=expected.users[1:])._asdict())
    elif damage == "NaN":
        np.savez(file, **expected._replace(users=np.nan * expected.users)._asdict())
    else:
        file.unlink()
        file.mkdir()
    found = cached_factors(small(), 2, sweeps=3)
    np.testing.assert_array_equal(found.users, expected.users)
    if damage != "a folder":
        assert file.read_bytes() == content
    assert [path.name for path in folder.iterdir()] == [file.name]


def test_a_folder_that_cannot_be_written_to_costs_nothing_but_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MIXTS_CACHE", str(tmp_path / "file"))
    assert cached_factors(small(), 2, sweeps=3).movies.shape == (30, 2)


def test_where_factors_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("MIXTS_CACHE", "")
    assert factors_folder() is None
    monkeypatch.delenv("MIXTS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert factors_folder() == tmp_path / "mixts" / "factors"
    cached_factors(small(), 2, sweeps=3)
    (file,) = (tmp_path / "mixts" / "factors").iterdir()
    assert file.stat().st_mode & stat.S_IRUSR


# The problem


@pytest.mark.parametrize("covariances", ["marginal", "mixture"])
def test_a_run_takes_the_rows_of_its_movies(covariances, precision):
    """Inside jit and vmap; the agent is told the rows that belong to the hidden vectors."""
    world = MovieLensProblem(num_actions=20, covariances=covariances, **QUICK)
    told, environment = jax.jit(jax.vmap(world.sample))(jax.random.split(jax.random.key(0), 3))
    movies = world.factors.movies.astype(precision)
    theta = np.asarray(environment.levels["action"])
    assert theta.dtype == precision
    assert theta.shape == (3, 20, 3)
    chosen = np.abs(theta[:, :, None] - movies).max(-1).argmin(-1)
    np.testing.assert_allclose(theta, movies[chosen], **tolerance())
    assert all(len(set(run)) == 20 for run in chosen.tolist())
    assert len({tuple(run) for run in chosen.tolist()}) == 3
    weights = np.asarray(world.structure["action"].parents["effect"])
    actions = told.levels[-1]
    np.testing.assert_allclose(actions.parents["effect"], weights[chosen], **tolerance())
    if covariances == "mixture":
        own = np.asarray(world.structure["action"].cov)[chosen]
        np.testing.assert_allclose(actions.cov, own, **tolerance())
    centres = np.asarray(environment.levels["effect"])
    np.testing.assert_allclose(centres[1], world.structure["effect"].mean, **tolerance())


def test_movies_are_chosen_uniformly(tmp_path):
    """Each of 8 movies in 3 of 8 runs: within five standard errors of 4,000 runs."""
    rng = np.random.default_rng(3)
    rows = [f"{u}::{m}::{rng.integers(1, 6)}::0\n" for u in range(20) for m in range(8)]
    (tmp_path / "ratings.dat").write_text("".join(rows))
    world = MovieLensProblem(tmp_path, num_actions=3, num_effects=1, dim=2, sweeps=5)
    draw = jax.jit(jax.vmap(lambda key: world.sample(key).environment.theta))
    theta = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    taken = np.abs(theta[:, :, None] - world.factors.movies).max(-1) < 1e-6
    assert (taken.sum(-1) == 1).all()
    error = np.sqrt(3 / 8 * 5 / 8 / 4000)
    assert (np.abs(taken.any(1).mean(0) - 3 / 8) < 5 * error).all()


def test_contexts_are_users_and_rewards_are_products():
    for world in (problem(), problem(reward=Bernoulli())):
        environment = world.sample(jax.random.key(1)).environment
        keys = jax.random.split(jax.random.key(2), 200)
        contexts = np.asarray(jax.vmap(environment.context)(keys))
        distance = np.abs(contexts[:, None] - world.factors.users).max(-1)
        assert (distance.min(1) < 1e-6).all()
        assert len(set(distance.argmin(1).tolist())) > 100
        expected = np.asarray(environment.theta) @ contexts[0]
        if isinstance(world.reward, Bernoulli):
            expected = 1 / (1 + np.exp(-expected))
        found = environment.mean_rewards(jax.numpy.asarray(contexts[0]))
        np.testing.assert_allclose(found, expected, **tolerance())


def test_the_scale_of_rewards():
    """Stars above or below the average: clicks are neither certain nor hopeless."""
    world = problem()
    rewards = world.factors.users @ world.factors.movies.T
    low, high = np.quantile(rewards, [0.01, 0.99])
    assert -2.5 < low < -0.5
    assert 0.5 < high < 2.5


def test_priors_with_and_without_structure():
    """The paper's LinTS has `N(mu, diag(v))`; `LinTS(told)` the marginal of what it is told."""
    world = problem()
    movies, told = world.factors.movies, world.sample(jax.random.key(3)).hierarchy
    alone = prior_moments(world.unstructured)
    np.testing.assert_allclose(alone.mean["action"][7], movies.mean(0), **tolerance())
    np.testing.assert_allclose(alone.cov["action"][7], np.diag(movies.var(0)), **tolerance())
    marginal = prior_moments(told)
    weights = np.asarray(told["action"].parents["effect"])
    centres = weights @ np.asarray(told["effect"].mean)
    np.testing.assert_allclose(marginal.mean["action"], centres, **tolerance())
    factor = 0.25 + 0.75 * np.sum(weights**2, axis=1)
    expected = factor[:, None, None] * np.diag(movies.var(0))
    np.testing.assert_allclose(marginal.cov["action"], expected, **tolerance())
    assert np.abs(centres - movies.mean(0)).max() > 0.1


def test_the_catalogue():
    world = problem()
    counts = np.bincount(shipped_ratings().movie)
    assert len(world.titles) == len(world.factors.movies) == (counts >= 30).sum()
    assert world.structure["action"].labels == world.titles
    assert "Toy Story (1995)" in world.titles
    every = cached_factors(shipped_ratings(), 3, sweeps=5)
    np.testing.assert_array_equal(world.factors.movies, every.movies[counts >= 30])


def test_the_number_of_effects_can_be_chosen():
    assert problem(num_effects=None).structure["effect"].size >= 1
    assert problem(num_effects=2).structure["effect"].size == 2


def test_policies_play_it():
    world = problem()
    policies = {
        "meTS": lambda h: ThompsonSampling(ClosedForm(h)),
        "LinTS": lambda _: LinTS(world.unstructured),
    }
    played = simulate(world, policies, 50, 4, 0, progress=False)
    for name in policies:
        regret = np.asarray(played.regret[name])
        assert regret.shape == (4, 50)
        assert np.isfinite(regret).all()
        assert (regret >= 0).all()
        assert regret.sum() > 0


@pytest.mark.slow
def test_clicks_can_be_played():
    world = problem(reward=Bernoulli())
    policies = {"meTS": lambda h: ThompsonSampling(Laplace(h))}
    regret = np.asarray(simulate(world, policies, 5, 2, 0, progress=False).regret["meTS"])
    assert ((regret >= 0) & (regret < 1)).all()


REFUSED = {
    "too many actions": (
        lambda: MovieLensProblem(num_actions=9725),
        ValueError,
        ["9725", "9724", "fewer"],
    ),
    "too many after leaving out": (
        lambda: MovieLensProblem(num_actions=100, min_ratings=300),
        ValueError,
        ["100 movies", "300 ratings", "lower min_ratings"],
    ),
    "dim": (lambda: MovieLensProblem(dim=0), ValueError, ["dim", "0"]),
    "dim above users": (lambda: MovieLensProblem(dim=611), ValueError, ["611", "610 users"]),
    "penalty": (lambda: MovieLensProblem(penalty=0.0), ValueError, ["penalty", "0.0", "positive"]),
    "sweeps": (lambda: MovieLensProblem(sweeps=0), ValueError, ["sweeps", "0"]),
    "learned noise": (
        lambda: MovieLensProblem(reward=Gaussian(dist.HalfNormal(1.0))),
        ValueError,
        ["MovieLensProblem", "known"],
    ),
}


@cases(problem=REFUSED)
def test_refused(declare, error, parts):
    check_refused(declare, error, parts)


def test_a_path_of_another_type_is_refused():
    with as_a_user(), pytest.raises(TypeError):
        MovieLensProblem(3)
