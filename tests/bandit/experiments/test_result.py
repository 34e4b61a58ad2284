"""Verdicts on claims: more than two standard errors, run by run."""

from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from mixts.bandit import MovieLensProblem, Played, Simulation, SyntheticProblem
from mixts.bandit.experiments import Result
from mixts.bandit.experiments.page import page
from mixts.inference import Status
from mixts.models import Gaussian
from tiny_figures import SIZE, panel, tiny


def result(differences, counts=None) -> Result:
    """Two policies whose totals differ by so much in each run, and vary a lot from run to run."""
    own = 100.0 * (1 + np.arange(len(differences)))
    regret = {"LinTS": own, "chance": own + differences}
    played = {
        name: Played(total[:, None], np.zeros((len(total), 1), int), Status(counts))
        for name, total in regret.items()
    }
    figure = tiny(panels=(panel(3),))
    size = SIZE._replace(runs=len(differences), horizon=1)
    return Result(figure, size, {"tiny K=3": Simulation(played, 1)})


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([1.0, 2.0, 3.0], "holds"),  # 2, and its standard error 0.58
        ([-1.0, -2.0, -3.0], "differs"),
        ([-1.0, 2.0, 3.0], "too close to tell"),  # 1.33 and 1.2
        ([5.0], "too close to tell"),  # nobody knows the error of one run
        ([0.0, 0.0, 0.0], "too close to tell"),
    ],
)
def test_verdicts(differences, verdict):
    (ordering,) = result(np.asarray(differences)).orderings()
    assert ordering.verdict == verdict
    assert ordering.difference == pytest.approx(np.mean(differences))


@pytest.mark.parametrize(("differences", "ratio"), [([-100.0, -200.0], 0.0), ([0.0, 0.0], 1.0)])
def test_ratios(differences, ratio):
    (ordering,) = result(np.asarray(differences)).orderings()
    assert ordering.ratio == ratio


def test_nobody_regrets_anything():
    """In a round or two everybody may be lucky."""
    given = result(np.ones(2))
    lucky = {
        name: part._replace(regret=0 * part.regret)
        for name, part in given.played["tiny K=3"].played.items()
    }
    given = Result(given.figure, given.size, {"tiny K=3": Simulation(lucky, 1)})
    (ordering,) = given.orderings()
    assert np.isnan(ordering.ratio)
    assert ordering.verdict == "too close to tell"
    assert "LinTS below chance" in page([given], given.size)


def test_troubles_are_on_the_page():
    quiet = result(np.ones(3), {"rejected": np.zeros(3, int)})
    assert "Troubles" not in page([quiet], quiet.size)
    loud = result(np.ones(3), {"rejected": np.asarray([0, 1200, 34])})
    assert "LinTS (K = 3): 1,234 rejected" in page([loud], loud.size)


def test_problems_are_on_the_page():
    """With what they were declared, and nothing that is another in the next process."""
    problem = partial(SyntheticProblem, 3, link=jax.nn.sigmoid, reward=Gaussian(2.0))
    given = result(np.ones(3))
    figure = tiny(panels=(panel(3, problem=problem),))
    shown = page([Result(figure, given.size, given.played)], given.size)
    assert "SyntheticProblem(3, link=sigmoid, reward=Gaussian(noise=2))" in shown
    figure = tiny(
        panels=(panel(3, problem=partial(MovieLensProblem, Path("/home/me/ml-1m"), dim=2)),)
    )
    shown = page([Result(figure, given.size, given.played)], given.size)
    assert "MovieLensProblem(&#39;ml-1m&#39;, dim=2)" in shown
    figure = tiny(panels=(panel(3, problem=lambda: object()),))
    assert " at 0x" not in page([Result(figure, given.size, given.played)], given.size)


def test_names_on_the_page_are_not_markup():
    given = result(np.ones(3))
    figure = tiny(panels=(panel(3),), says="x < y & <script>", title="<b>")
    shown = page([Result(figure, given.size, given.played)], given.size)
    assert "<script>" not in shown
    assert "x &lt; y &amp; &lt;script&gt;" in shown
