"""`Catalogue`: levels, contexts, data and new items by hand."""

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mixts.models import Bernoulli, Catalogue, CatalogueError, Gaussian

SHOP = pd.DataFrame(
    {
        "item": ["boot", "clog", "robot", "ball"],
        "top": ["shoes", "shoes", "toys", "toys"],
        "sub": ["new", "old", "new", "old"],
        "tags": ["red|warm", "red", None, "round"],
        "price": [80.0, 40.0, 60.0, 20.0],
    }
)
PEOPLE = pd.DataFrame({"age": [20.0, 30.0, 40.0], "town": ["Oslo", "Rome", "Oslo"]})


def names(catalogue: Catalogue) -> list[str]:
    return [level.name for level in catalogue.hierarchy.levels]


def test_the_same_label_below_different_parents_is_another_node():
    catalogue = Catalogue(SHOP, "item", nested=["top", "sub"])
    assert names(catalogue) == ["common", "top", "sub", "item"]
    nodes = [("shoes", "new"), ("shoes", "old"), ("toys", "new"), ("toys", "old")]
    assert list(catalogue.hierarchy["sub"].labels) == nodes
    assert all(level.branching for level in catalogue.hierarchy.levels)


def test_common_is_above_the_tree_and_else_above_the_actions():
    tree = Catalogue(SHOP, "item", nested="top", numeric="price")
    assert list(tree.hierarchy["top"].parents) == ["common"]
    assert list(tree.hierarchy["item"].parents) == ["numeric", "top"]
    crossed = Catalogue(SHOP, "item", crossed=["tags"], missing="new")
    assert list(crossed.hierarchy["item"].parents) == ["common", "tags"]
    alone = Catalogue(SHOP, "item", common=False)
    assert names(alone) == ["item"]


def test_scales_are_learned_unless_told_otherwise():
    catalogue = Catalogue(
        SHOP,
        "item",
        nested=["top", "sub"],
        reward=Gaussian(2.0),
        covs={"top": 0.5, "common": 9.0},
        scales={"sub": dist.Exponential(3.0)},
        means={"common": 1.5},
    )
    levels = {level.name: level for level in catalogue.hierarchy.levels}
    assert float(levels["top"].cov) == 0.5
    assert float(levels["common"].cov) == 9.0
    assert float(levels["common"].mean) == 1.5
    assert isinstance(levels["sub"].scale, dist.Exponential)
    assert float(levels["item"].scale.scale) == 2.0
    with pytest.raises(ValueError, match="there is no level 'tops'"):
        Catalogue(SHOP, "item", nested="top", covs={"tops": 1.0})


def test_a_number_is_standardised_for_ever():
    catalogue = Catalogue(SHOP, "item", numeric="price")
    weights = np.asarray(catalogue.hierarchy.actions.parents["numeric"])[:, 0]
    np.testing.assert_allclose(weights, (SHOP["price"] - 50) / np.sqrt(500), rtol=1e-6)
    new = catalogue.weights({"item": "kite", "price": 50.0})
    assert new["numeric"].tolist() == [[0.0]]
    with pytest.raises(CatalogueError, match="row 1, column 'price': 'much' is not a number"):
        catalogue.weights([{"item": "a", "price": 1}, {"item": "b", "price": "much"}])
    with pytest.raises(CatalogueError, match="cannot be standardised"):
        Catalogue(SHOP.assign(price=3.0), "item", numeric="price")


def test_what_is_missing_and_what_was_never_seen():
    with pytest.raises(CatalogueError, match="row 2, column 'tags': None is missing"):
        Catalogue(SHOP, "item", crossed="tags")
    unknown = Catalogue(SHOP, "item", crossed="tags", missing="unknown")
    # The average of red and warm, red, and round.
    np.testing.assert_allclose(unknown.parts.crossed[0][0].shares, [0.5, 1 / 3, 1 / 6])
    new = unknown.weights({"item": "kite", "tags": "red|blue"})["tags"]
    np.testing.assert_allclose(np.asarray(new.values), [[0.75, 1 / 6, 1 / 12]], rtol=1e-6)
    drawn = Catalogue(SHOP, "item", crossed="tags", missing={"tags": "new"})
    assert list(drawn.hierarchy["tags"].labels) == ["red", "round", "warm", "(new)"]
    new = drawn.weights({"item": "kite", "tags": "red|blue"})["tags"]
    assert np.asarray(new.indices).tolist() == [[0, 3]]


def test_new_items_may_bring_nodes_of_the_tree():
    known = Catalogue(SHOP, "item", nested=["top", "sub"])
    with pytest.raises(CatalogueError, match="row 0, column 'top': 'bags' was never seen"):
        known.weights({"item": "purse", "top": "bags", "sub": "new"})
    open_ended = Catalogue(SHOP, "item", nested=["top", "sub"], missing="new")
    new = open_ended.new_items(
        {"item": ["purse", "top"], "top": ["bags", "toys"], "sub": ["new", None]}
    )
    assert [tuple(node) for node in new.nodes["top"]] == [("bags", None)]
    assert [tuple(node) for node in new.nodes["sub"]] == [
        (("bags", "new"), "bags"),
        (("toys", "(new)"), "toys"),
    ]
    grown = new.catalogue.hierarchy
    assert np.asarray(grown["sub"].parents["top"].indices)[:, 0].tolist() == [0, 0, 1, 1, 2, 1]
    assert np.asarray(grown["item"].parents["sub"].indices)[:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_several_labels_are_averaged_or_added():
    table = SHOP.fillna({"tags": "round"})
    averaged = Catalogue(table, "item", crossed={"tag": "tags"}).parts.crossed[0][1]
    added = Catalogue(table, "item", crossed={"tag": "tags"}, several="sum").parts.crossed[0][1]
    assert np.asarray(averaged.values)[0].tolist() == [0.5, 0.5]
    assert np.asarray(added.values)[0].tolist() == [1.0, 1.0]
    one = Catalogue(table, "item", crossed={"tag": "tags"}, separator=None)
    assert "red|warm" in one.hierarchy["tag"].labels


@pytest.mark.parametrize("frame", [PEOPLE, pl.from_pandas(PEOPLE)], ids=["pandas", "polars"])
def test_a_formula_is_learned_once(frame):
    formula = "1 + scale(age) + C(town)"
    catalogue = Catalogue(SHOP, "item", contexts=formula, visitors=frame)
    assert list(catalogue.hierarchy.components) == ["Intercept", "scale(age)", "C(town)[T.Rome]"]
    np.testing.assert_allclose(catalogue.contexts({"age": 50.0, "town": "Rome"}), [[1.0, 2.0, 1.0]])
    np.testing.assert_allclose(catalogue.contexts(frame)[:, 1], [-1, 0, 1], atol=1e-12)
    with pytest.raises(CatalogueError, match="row 0, column 'town': 'Bonn' was never seen"):
        catalogue.contexts({"age": 50.0, "town": "Bonn"})
    with pytest.raises(CatalogueError, match=r"row 1, column 'age': .* is missing"):
        catalogue.contexts([{"age": 50.0, "town": "Rome"}, {"age": None, "town": "Rome"}])


def test_categories_by_number_are_categories():
    people = pd.DataFrame({"zone": [1, 2, 3, 1]})
    catalogue = Catalogue(SHOP, "item", contexts="C(zone)", visitors=people)
    with pytest.raises(CatalogueError, match="row 0, column 'zone': 4 was never seen"):
        catalogue.contexts({"zone": 4})


def test_splines_stay_as_they_were():
    ages = pd.DataFrame({"age": np.linspace(20, 60, 30)})
    catalogue = Catalogue(SHOP, "item", contexts="bs(age, df=4)", visitors=ages)
    whole = catalogue.contexts(ages)
    np.testing.assert_allclose(catalogue.contexts(ages.iloc[[7]])[0], whole[7])


def test_a_fitted_transformer():
    make = make_column_transformer((OneHotEncoder(), ["town"]), (StandardScaler(), ["age"]))
    catalogue = Catalogue(SHOP, "item", contexts=make.fit(PEOPLE))
    assert catalogue.contexts({"town": "Rome", "age": 30.0}).tolist() == [[0.0, 1.0, 0.0]]
    with pytest.raises(CatalogueError, match="Bonn"):
        catalogue.contexts({"town": "Bonn", "age": 30.0})
    with pytest.raises(CatalogueError, match="was fitted"):
        Catalogue(SHOP, "item", contexts=StandardScaler())


def test_the_encoding_is_asked_for_before_it_is_used():
    catalogue = Catalogue(SHOP, "item", contexts=["age", "town"])
    with pytest.raises(ValueError, match="not learned yet; pass visitors"):
        _ = catalogue.hierarchy
    learned = catalogue.learned_from(PEOPLE)
    assert learned.hierarchy.dim == 3
    assert catalogue.encoding is None


@pytest.mark.parametrize(
    "contexts", ["1 + bs(age, df=4) * C(town)", ["age", "town"], "transformer"]
)
def test_a_file_holds_all_of_it(contexts, tmp_path):
    people = pd.DataFrame({"age": np.linspace(20.0, 60.0, 9), "town": ["Oslo", "Rome", "Bonn"] * 3})
    if contexts == "transformer":
        make = make_column_transformer((OneHotEncoder(), ["town"]), (StandardScaler(), ["age"]))
        contexts = make.fit(people)
    options = {"nested": ["top", "sub"], "numeric": "price", "missing": "new"}
    catalogue = Catalogue(SHOP, "item", contexts=contexts, visitors=people, **options)
    _ = catalogue.hierarchy
    catalogue.save(tmp_path / "shop")
    again = Catalogue.load(tmp_path / "shop")
    np.testing.assert_array_equal(again.contexts(people[3:5]), catalogue.contexts(people[3:5]))
    assert repr(again.hierarchy) == repr(catalogue.hierarchy)
    assert again.positions({"item": "ball"}).tolist() == [3]
    (tmp_path / "broken").write_bytes(b"nothing")
    with pytest.raises(CatalogueError, match="holds no catalogue"):
        Catalogue.load(tmp_path / "broken")


def test_a_log_becomes_data():
    catalogue = Catalogue(SHOP, "item", contexts=["age"], visitors=PEOPLE, reward=Bernoulli())
    log = pl.DataFrame({"item": ["ball", "boot"], "age": [30, 40], "clicked": [True, False]})
    data = catalogue.data(log, reward="clicked")
    assert data.actions.tolist() == [3, 0]
    assert data.rewards.tolist() == [1.0, 0.0]
    assert data.contexts[:, 1].tolist() == pytest.approx([0.0, np.sqrt(1.5)])
    for change, message in (
        ({"item": "bat"}, "row 1, column 'item': 'bat' is no item of the catalogue"),
        ({"clicked": 0.5}, "row 1, column 'clicked': 0.5 is no reward of Bernoulli"),
        ({"clicked": None}, "row 1, column 'clicked': None is missing"),
    ):
        rows = log.to_dicts()
        with pytest.raises(CatalogueError, match=message):
            catalogue.data([rows[0], rows[1] | change], reward="clicked")


def test_exposure_is_a_column():
    catalogue = Catalogue(SHOP, "item", reward=Bernoulli())
    log = pd.DataFrame({"item": ["ball"], "clicks": [3], "shown": [10]})
    assert catalogue.data(log, "clicks", exposure="shown").exposure.tolist() == [10.0]
    with pytest.raises(CatalogueError, match=r"row 0, column 'clicks': 3\.0 is no reward"):
        catalogue.data(log.assign(shown=2), "clicks", exposure="shown")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action": "name"}, "there is no column 'name'"),
        ({"crossed": "kind"}, "there is no column 'kind'"),
        ({"crossed": {"item": "tags"}}, "two levels are called 'item'"),
        ({"crossed": {"a tag": "tags"}}, "cannot name a level"),
        ({"nested": "top", "missing": {"top": "unknown"}}, "expected 'error', 'new'"),
        ({"nested": "top", "missing": "ignore"}, "got 'ignore'"),
        ({"crossed": "top", "several": "mean"}, "got 'mean'"),
        ({"contexts": "1 +", "visitors": PEOPLE}, "is no formula"),
        ({"contexts": "age ~ town", "visitors": PEOPLE}, "left side"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises((CatalogueError, ValueError, TypeError), match=message):
        Catalogue(SHOP, **{"action": "item"} | arguments)


def test_no_table():
    with pytest.raises(TypeError, match="expected a table of pandas, polars or pyarrow"):
        Catalogue(5, "item")
    with pytest.raises(CatalogueError, match="the table has no rows"):
        Catalogue(SHOP.iloc[:0], "item")
