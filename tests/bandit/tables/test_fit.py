"""`fit`: from two tables to a posterior and an agent."""

import arviz
import numpy as np
import pandas as pd
import pytest

from mixts.bandit import Agent, ThompsonSampling, compare_fits, fit
from mixts.inference import ClosedForm, Collapsed, best_backend
from mixts.models import Bernoulli, Catalogue, CatalogueError, Gaussian
from sampling import unoptimised

SHOES = pd.DataFrame(
    {
        "shoe": [f"shoe {i}" for i in range(12)],
        "kinds": ["warm|dry", "warm", "light", "dry"] * 3,
        "top": ["boots"] * 6 + ["sandals"] * 6,
    }
)


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def worn(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    shoes, age = rng.integers(0, 12, n), rng.uniform(20, 60, n)
    mean = 5.0 + (shoes < 6) + 0.03 * (age - 40)
    return pd.DataFrame(
        {"shoe": SHOES["shoe"].to_numpy()[shoes], "age": age, "worn": mean + rng.normal(size=n)}
    )


LOG = worn()


@pytest.fixture(scope="module")
def found():
    """With known scales: in no time."""
    catalogue = Catalogue(
        SHOES,
        "shoe",
        crossed="kinds",
        nested="top",
        contexts="1 + scale(age)",
        covs=0.3,
        missing="new",
    )
    given = catalogue.changed(
        reward=Gaussian(1.0), laws=catalogue.laws | {"common": {"cov": 100.0}}
    )
    return fit(given, LOG, reward="worn")


def test_the_posterior_is_that_of_the_backend_itself(found):
    assert isinstance(found.backend, ClosedForm)
    backend = ClosedForm(found.catalogue.hierarchy)
    posterior = backend.posterior(
        backend.condition(backend.init(), *found.catalogue.data(LOG, "worn"))
    )
    effects = found.effects()
    sandals = effects.query("level == 'top' and label == 'sandals' and component == 'Intercept'")
    expected = float(posterior.mean["top"][1, 0]), float(posterior.cov["top"][1, 0, 0]) ** 0.5
    assert (sandals["mean"].item(), sandals["sd"].item()) == pytest.approx(expected, rel=1e-5)


def test_predictions_are_means_of_the_item_in_the_row(found):
    posterior = found.posterior()
    rows = LOG.iloc[[5, 9]]
    contexts = found.catalogue.contexts(rows)
    actions = found.catalogue.positions(rows)
    means = np.asarray(posterior.mean["shoe"])[actions]
    predicted = found.predict(rows)
    np.testing.assert_allclose(predicted["mean"], (contexts * means).sum(1), rtol=1e-5)
    assert list(predicted.index) == list(rows.index)
    items = found.items(LOG.iloc[[5]])
    assert items.loc[LOG["shoe"][5], "mean"] == pytest.approx(predicted["mean"].iloc[0], rel=1e-5)
    assert items["rewards"].sum() == len(LOG)


def test_the_agent_speaks_rows_and_labels(found):
    agent = found.agent()
    decision = agent.act({"age": 30.0})
    assert decision.action in set(SHOES["shoe"])
    agent.reward(decision.id, 6.0)
    assert agent.act(pd.Series({"age": 33.0})).action in set(SHOES["shoe"])
    assert len(agent.act_many(pd.DataFrame({"age": [30.0, 40.0]})).ids) == 2
    agent.update({"age": 30.0}, "shoe 3", 5.0)
    same = agent.act(found.catalogue.contexts({"age": 30.0})[0])
    assert same.action in set(SHOES["shoe"])
    table = agent.items([{"age": 30.0}, {"age": 50.0}], draws=50)
    assert table.loc[0]["best"].sum() == pytest.approx(1.0)
    assert table.index.names == ["visitor", "action"]
    assert set(agent.effects()["level"]) == {"common", "top", "kinds"}
    with pytest.raises(ValueError, match="no column 'age'"):
        agent.act({"years": 30.0})


def test_an_agent_from_a_file_speaks_again(found, tmp_path):
    agent = found.agent()
    agent.save(tmp_path / "agent")
    found.catalogue.save(tmp_path / "catalogue")
    again = Agent.load(tmp_path / "agent")
    again.speak(Catalogue.load(tmp_path / "catalogue"))
    assert again.act({"age": 30.0}) == agent.act({"age": 30.0})


def test_new_items_come_as_rows(found):
    agent = found.agent()
    rows = {"shoe": ["clog", "mule"], "kinds": ["warm", "dry|warm"], "top": ["boots", "sandals"]}
    new = pd.DataFrame(rows)
    assert agent.add_items(new) == ["clog", "mule"]
    before, after = found.posterior().mean["kinds"], agent.posterior().mean["kinds"]
    np.testing.assert_array_equal(before, after)
    agent.update({"age": 30.0}, "mule", 9.0)
    with pytest.raises(ValueError, match="row 0, column 'shoe': 'clog' is an item"):
        agent.add_items(new)


def test_new_items_of_a_tree_bring_new_nodes():
    catalogue = Catalogue(
        SHOES, "shoe", nested="top", covs=0.3, missing="new", reward=Gaussian(1.0)
    )
    policy = ThompsonSampling(best_backend(catalogue.hierarchy).backend)
    agent = Agent(policy, catalogue=catalogue)
    assert agent.add_items({"shoe": "mule", "top": "clogs"}) == ["mule"]
    agent.update({}, "mule", 9.0)
    means = agent.effects().set_index("label")["mean"]
    assert means["clogs"] > means["boots"] > 0
    assert agent.add_items({"shoe": "sabot", "top": "clogs"}) == ["sabot"]


def test_an_agent_without_a_catalogue_says_so(found):
    agent = Agent(ThompsonSampling(found.backend))
    with pytest.raises(ValueError, match="no catalogue"):
        agent.add_items(SHOES)
    two = Catalogue(SHOES.iloc[:2], "shoe", contexts=["age"], visitors=LOG, covs=1.0)
    policy = ThompsonSampling(ClosedForm(two.changed(reward=Gaussian(1.0)).hierarchy))
    with pytest.raises(ValueError, match="has 12 items, and the policy 2"):
        Agent(policy, catalogue=found.catalogue)


def test_maximised_numbers_are_in_the_units_of_the_log():
    catalogue = Catalogue(SHOES, "shoe", nested="top")
    fits = [
        fit(catalogue, LOG.assign(worn=scale * LOG["worn"]), reward="worn", numbers="maximum")
        for scale in (1.0, 1000.0)
    ]
    small, large = (float(each.hierarchy.reward.noise) for each in fits)
    assert large == pytest.approx(1000 * small, rel=1e-3)
    assert small == pytest.approx(1.05, abs=0.1)
    assert "log evidence" in repr(fits[0])


@pytest.mark.slow
def test_learned_scales_and_clicks():
    log = LOG.assign(clicked=LOG["worn"] > 5.5)
    catalogue = Catalogue(SHOES, "shoe", nested="top", reward=Bernoulli())
    found = fit(
        catalogue,
        log,
        reward="clicked",
        backend=lambda hierarchy: Collapsed(
            hierarchy, particles=16, chains=1, warmup=20, samples=20
        ),
    )
    numbers = found.numbers()
    assert list(numbers.index) == ["top_scale", "shoe_scale"]
    assert (numbers["5%"] < numbers["95%"]).all()
    assert found.draw(3)["shoe"].shape == (3, 12, 1)


def test_fits_are_checked_with_arviz(found):
    n = 4000
    tree = found.to_arviz(n)
    loo = arviz.loo(tree)
    exact = found.leave_one_out()
    # Importance sampling of 4,000 draws, and its smoothing.
    assert float(loo.elpd_loo) == pytest.approx(exact.elpd, abs=0.3)
    assert float(loo.se) == pytest.approx(exact.se, rel=0.02)
    drawn = np.asarray(tree["posterior_predictive"]["reward"])[0]
    assert drawn.shape == (n, len(LOG))
    predicted = found.predict(LOG)
    # Five standard errors of the mean of draws.
    spread = np.sqrt(predicted["sd"].to_numpy() ** 2 + 1.0)
    assert (np.abs(drawn.mean(0) - predicted["mean"]) < 5 * spread / np.sqrt(n)).all()
    np.testing.assert_array_equal(tree["observed_data"]["reward"], found.data.rewards)


def test_fits_are_compared(found):
    plain = fit(
        Catalogue(SHOES, "shoe", covs={"shoe": 0.3, "common": 100.0}, reward=Gaussian(1.0)),
        LOG,
        reward="worn",
    )
    table = compare_fits({"plain": plain, "with age": found})
    assert list(table.index) == ["with age", "plain"]
    assert table["difference"].iloc[0] == 0.0
    assert table.loc["plain", "difference"] < -table.loc["plain", "se_difference"] < 0
    with pytest.raises(ValueError, match="other rewards"):
        compare_fits(
            {"plain": plain, "other": plain._replace(data=found.catalogue.data(LOG[:9], "worn"))}
        )


def test_mistakes():
    catalogue = Catalogue(SHOES, "shoe")
    with pytest.raises(CatalogueError, match="row 1, column 'worn'"):
        fit(catalogue, [{"shoe": "shoe 1", "worn": 1.0}, {"shoe": "shoe 1", "worn": "a"}], "worn")
    with pytest.raises(ValueError, match="has no rows"):
        fit(catalogue, LOG.iloc[:0], "worn")
    with pytest.raises(ValueError, match="got 'best'"):
        fit(catalogue, LOG, "worn", numbers="best")
