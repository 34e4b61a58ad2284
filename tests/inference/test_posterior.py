"""`Posterior` as a user sees it: its arrays, its text, and its ArviZ view."""

import arviz
import jax
import numpy as np
import pytest

from mixts.inference import ClosedForm, Factored
from mixts.models import Gaussian, Hierarchy, Level

GENRES, MOVIES = ["drama", "comedy"], ["Heat", "Up", "Big"]


@pytest.fixture
def posterior():
    """Levels that are not in alphabetical order; one has labels, the other positions."""
    rng = np.random.default_rng(0)
    zone = Level("zone", 4, cov=0.5)
    genre = Level("genre", 2, cov=2.0, labels=GENRES)
    parents = {"genre": rng.normal(size=(3, 2)), "zone": rng.normal(size=(3, 4))}
    movie = Level("movie", 3, parents=parents, labels=MOVIES)
    backend = ClosedForm(Hierarchy([zone, genre, movie], Gaussian(0.5), 2))
    state = backend.condition(backend.init(), rng.normal(size=(9, 2)), [0, 1, 2] * 3, np.ones(9))
    return backend.posterior(state)


def test_arrays(posterior):
    assert list(posterior.mean) == list(posterior.cov) == ["zone", "genre", "movie"]
    assert posterior.mean["movie"].shape == (3, 2)
    assert posterior.cov["zone"].shape == (4, 2, 2)
    assert posterior.log_evidence.shape == ()


def test_text(posterior):
    assert repr(posterior) == "Posterior(zone (4, 2), genre (2, 2), movie (3, 2))"
    hierarchy = posterior.backend.hierarchy
    assert repr(posterior.backend) == f"ClosedForm({hierarchy!r})"
    assert repr(Factored(hierarchy)) == f"Factored({hierarchy!r}, means='decoupled')"


def test_arviz_names_everything(posterior):
    group = posterior.to_arviz(n=50)["posterior"]
    assert group["movie"].dims == ("chain", "draw", "movie_id", "component")
    assert group["movie"].shape == (1, 50, 3, 2)
    assert group["movie_id"].values.tolist() == MOVIES
    assert group["genre_id"].values.tolist() == GENRES
    assert group["zone_id"].values.tolist() == [0, 1, 2, 3]
    assert group["component"].values.tolist() == [0, 1]


def test_arviz_holds_the_posterior_s_draws(posterior):
    key = jax.random.key(3)
    group = posterior.to_arviz(key, 20)["posterior"]
    draws = posterior.draw(key, 20)
    for name in ("zone", "genre", "movie"):
        np.testing.assert_array_equal(group[name].values[0], draws[name])
    chosen = group["movie"].sel(movie_id="Up", component=1).values[0]
    np.testing.assert_array_equal(chosen, draws["movie"][:, 1, 1])


def test_arviz_default_has_a_thousand_draws(posterior):
    group = posterior.to_arviz()["posterior"]
    assert group.sizes["draw"] == 1000
    np.testing.assert_array_equal(group["movie"], posterior.to_arviz()["posterior"]["movie"])


def test_arviz_summary(posterior):
    """ArviZ's own table, with a row for each number; a mean of n draws is off by sd / sqrt(n)."""
    n = 4000
    table = arviz.summary(
        posterior.to_arviz(n=n), var_names=["movie"], kind="stats", round_to="none"
    )
    assert list(table.index[:2]) == ["movie[Heat, 0]", "movie[Heat, 1]"]
    sd = np.sqrt(np.diagonal(posterior.cov["movie"], axis1=1, axis2=2)).ravel()
    mean = np.asarray(posterior.mean["movie"]).ravel()
    assert np.abs((table["mean"] - mean) / (sd / np.sqrt(n))).max() < 5
    # A standard deviation is off by about sd / sqrt(2 n).
    assert np.abs((table["sd"] - sd) / (sd / np.sqrt(2 * n))).max() < 5
