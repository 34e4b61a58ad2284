"""Pieces: the same bits wherever they are played, and a file that is never taken for another's."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from mixts.bandit import LinTS, SyntheticProblem, simulate
from mixts.bandit.experiments import pieces
from mixts.bandit.experiments.here import play_here
from mixts.bandit.experiments.pieces import Piece, Store, pieces_of, play, problem_of
from mixts.bandit.experiments.record import OfProblem
from mixts.bandit.simulation.run import told_truth
from tiny_figures import SIZE, panel, tiny


def told(problem):
    return problem.sample(jax.random.key(0)).hierarchy


@pytest.fixture(scope="module")
def played():
    return play(Piece(panel(3), "LinTS", SIZE))


@pytest.mark.slow
def test_a_piece_is_a_policy_of_a_simulation(played):
    both = simulate(
        panel(3).problem(), panel(3).policies, SIZE.horizon, SIZE.runs, SIZE.seed, progress=False
    )
    np.testing.assert_array_equal(played.regret["LinTS"], both.regret["LinTS"])
    np.testing.assert_array_equal(played.actions["LinTS"], both.actions["LinTS"])


def test_what_is_shared_is_played_once():
    figure = tiny()
    again = replace(figure, name="again", panels=figure.panels[:1])
    assert len(pieces_of([figure, again], SIZE)) == 4


def test_a_name_for_everything_that_matters(tmp_path):
    ratings = tmp_path / "ratings.csv"
    ratings.write_text("one")
    given = [
        Piece(panel(3), "LinTS", SIZE),
        Piece(panel(4), "LinTS", SIZE),
        Piece(panel(3), "chance", SIZE),
        Piece(panel(3), "LinTS", SIZE._replace(runs=4)),
        Piece(panel(3), "LinTS", SIZE._replace(horizon=41)),
        Piece(panel(3), "LinTS", SIZE._replace(seed=2)),
        Piece(panel(3, data=ratings), "LinTS", SIZE),
    ]
    names = [piece.file_name for piece in given]
    ratings.write_text("another")
    names.append(given[-1].file_name)
    assert len(set(names)) == len(names)
    assert names[0] == Piece(panel(3), "LinTS", SIZE).file_name
    assert names[0].startswith("tiny-K=3--LinTS--")


def test_a_version_counts(monkeypatch):
    """Code that has changed is another piece when the version says so: a panel's, or that of mixts."""

    def own(noise, version):
        policies = {"LinTS": lambda h: LinTS(h, noise=noise)}
        return Piece(panel(3, policies=policies, claims=(), version=version), "LinTS", SIZE)

    first, raised = own(1.0, version=1), own(2.0, version=2)
    assert first.file_name != raised.file_name
    assert first.file_name == own(1.0, version=1).file_name
    before = first.file_name
    monkeypatch.setattr(pieces, "VERSION", pieces.VERSION + 1)
    assert first.file_name != before


def test_what_was_played_with_another_version_is_not_used(tmp_path, played, monkeypatch):
    store, piece = Store(tmp_path), Piece(panel(3), "LinTS", SIZE)
    store.save(piece, played)
    assert store.load(piece) is not None
    assert store.load(Piece(panel(3, version=2), "LinTS", SIZE)) is None
    for name, value in (("VERSION", -1), ("versions", lambda: {"jax": "another"})):
        with monkeypatch.context() as patched:
            patched.setattr(pieces, name, value)
            assert store.load(piece) is None
    assert store.load(piece) is not None


def test_what_a_declaration_holds_counts():
    """The same names with other arguments, of the problem or of the policy, are other pieces."""
    long = np.ones((2000, 2))
    other = long.copy()
    other[1000] = 2.0
    given = [
        panel(3),
        panel(3, problem=partial(SyntheticProblem, 3, 2, 2, effect_cov=9.0)),
        panel(3, problem=partial(SyntheticProblem, 3, 2, 2, action_cov=9.0)),
        panel(3, problem=partial(SyntheticProblem, 3, 2, 2, contexts=long)),
        panel(3, problem=partial(SyntheticProblem, 3, 2, 2, contexts=other)),
        panel(3, problem=partial(SyntheticProblem, 3, 2, 2, link=jax.nn.sigmoid)),
        panel(3, problem=partial(SyntheticProblem, 3, 2, 2, link=jax.nn.softplus)),
        panel(3, policies={"LinTS": partial(LinTS, noise=2.0)}, claims=()),
        panel(3, policies={"LinTS": told_truth(partial(LinTS, noise=3.0))}, claims=()),
    ]
    names = [Piece(one, "LinTS", SIZE).file_name for one in given]
    assert len(set(names)) == len(names)
    again = panel(3, problem=partial(SyntheticProblem, 3, 2, 2, contexts=long.copy()))
    assert Piece(again, "LinTS", SIZE).file_name == names[3]
    assert " at 0x" not in str(Piece(given[5], "LinTS", SIZE).description)


def test_one_name_for_two_problems():
    other = panel(3, problem=partial(SyntheticProblem, 3, 2, 2, effect_cov=9.0))
    figures = [tiny(panels=(panel(3),)), tiny(name="other", panels=(other,))]
    with pytest.raises(ValueError, match="'LinTS' of panel 'tiny K=3' is declared in two ways"):
        pieces_of(figures, SIZE)


def test_a_damaged_piece_does_not_count(tmp_path, played):
    store, piece = Store(tmp_path), Piece(panel(3), "LinTS", SIZE)
    assert store.load(piece) is None
    store.save(piece, played)
    whole = store.path(piece).read_bytes()
    np.testing.assert_array_equal(store.load(piece).regret["LinTS"], played.regret["LinTS"])
    store.path(piece).write_bytes(whole[:-100])
    assert store.load(piece) is None
    store.save(piece, played)
    assert store.path(piece).read_bytes() == whole


def test_problems_are_made_once():
    given = panel(7)
    assert problem_of(given) is problem_of(panel(7))
    assert problem_of(given) is not problem_of(panel(8))


def test_a_policy_of_the_problem():
    """Made from the problem, whatever the agent is told."""
    seen = []
    given = panel(
        3, policies={"own": OfProblem(lambda it: LinTS(seen.append(it) or told(it)))}, claims=()
    )
    problem = given.problem()
    made = given.maker("own", problem)(told(panel(8).problem()))
    assert made.backend.hierarchy.num_actions == 3
    assert seen == [problem]


def test_a_failure_ends_everything(tmp_path):
    """Pieces that are finished stay; the others are given up."""

    def broken(hierarchy):
        raise RuntimeError("this policy cannot be made")

    given = panel(3, policies={"broken": broken, "LinTS": LinTS}, claims=())
    with pytest.raises(RuntimeError, match="cannot be made"):
        play_here(pieces_of([tiny(panels=(given,))], SIZE), Store(tmp_path), lambda *_: None)
