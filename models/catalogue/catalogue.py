"""`Catalogue`: a table of items as a hierarchy with names, and rows as contexts and data."""

import pickle
from collections.abc import Hashable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Int
from numpyro.distributions import Distribution

from ..arrays import as_positive
from ..data import Data
from ..hierarchy import Hierarchy
from ..messages import listed, short
from ..rewards import Gaussian, Reward
from .assembly import action_weights, levels_of
from .cells import label_column
from .choices import as_choices, check_levels
from .encoding import Encoding, learn_encoding
from .learning import Options, action_labels, joined_parts, learn_parts, sizes_of
from .nested import NewNode
from .table import CatalogueError, Table, as_table, numbers_of

__all__ = ["Catalogue", "NewItems"]

_COMPUTED = ("hierarchy", "_places")  # from the rest, when they are asked for
_FORMAT = "mixts catalogue 1"


class NewItems(NamedTuple):
    """Items that a catalogue does not have yet.

    Attributes:
        labels: of the items.
        weights: parent level's name -> their weights, on the nodes of the catalogue and on new ones.
        nodes: level's name -> nodes of the tree that there are not yet.
        catalogue: the catalogue with these items after those it has.

    Example:
        >>> import pandas as pd
        >>> shoes = pd.DataFrame({"shoe": ["boot", "clog"], "kind": ["warm", "light"]})
        >>> catalogue = Catalogue(shoes, action="shoe", crossed="kind")
        >>> new = catalogue.new_items({"shoe": "sandal", "kind": "light"})
        >>> new.labels, new.catalogue.hierarchy.num_actions
        (('sandal',), 3)
    """

    labels: tuple[Hashable, ...]
    weights: dict[str, Any]
    nodes: dict[str, list[NewNode]]
    catalogue: "Catalogue"


class Catalogue:
    """Items and the columns that matter, as a hierarchy with names; rows as contexts and data.

    Labels are text or whole numbers; text is taken without the spaces around it and in Unicode's composed
    form. What cannot be read is refused by a `CatalogueError` that names row, column and value.

    The encoding of contexts and the standardisation of numbers are learned once and stay the same.

    Args:
        items: a table with a row for each item, of pandas, polars or pyarrow.
        action: the column of the items' labels, all different; `{level: column}` names the level.
        crossed: columns of labels, each a level of effects. A cell holds one label, several ("a|b", or
            a list), or `{label: weight}`.
        nested: columns of a tree, top to bottom: each node has one parent. The same label below
            different parents is another node, called by its path: `("shoes", "boots")`.
        numeric: columns of numbers, together a level "numeric" with an effect for each, whose weights
            are the standardised numbers; a dict makes several levels.
        contexts: what a visitor's context is made of: a formula such as "1 + age + C(gender)", a list
            of columns (an intercept, standardised numbers, 0 or 1 for each label but the first), or a
            fitted transformer of scikit-learn. By default all visitors are alike.
        visitors: the table that the encoding of contexts is learned from: it needs to hold every
            category there is. Without it `learned_from` says it later.
        reward: the family of rewards, by default Gaussian with a noise that is learned.
        unit: what rewards differ by, about: what is learned is HalfNormal(unit), and the variance of
            "common" is 100 unit² (or 4, where rewards are not Gaussian). By default the noise of Gaussian
            rewards, where it is known, and else 1; `fit` takes the log's own.
        several: whether several labels of an item are averaged ("average") or added ("sum"); by level
            in a dict. Weights in a cell are taken as they are.
        separator: of several labels in a text; None where a text is one label. By level in a dict.
        missing: what a missing cell, or a label never seen, is: "error"; "unknown", one of the known,
            averaged over (of a number its mean); or "new", drawn from its population: a label "(new)"
            which all such items of a column share, and in a tree a node of its own. By level in a dict.
        common: whether all actions have a vector in common, a level "common": the intercept and other
            fixed effects. It is the parent of the tree's top, or of the actions.
        means: level's name -> prior mean, as in `Level`.
        covs: level's name -> known covariance, or one for all levels but "common"; "common" has a wide
            one by default (see unit).
        scales: level's name -> distribution of an unknown standard deviation, or one for all levels but
            "common". By default HalfNormal(unit).

    Attributes:
        action_column: the column of the items' labels.
        choices: the columns of each level.
        encoding: rows to contexts; None as long as it is not learned.
        labels: of the items.
        parts: what the items were found to be.
        reward_given: the family of rewards as it was given, or None.
        unit: see there.

    Example:
        >>> import pandas as pd
        >>> movies = pd.DataFrame({"title": ["Airplane!", "Heat"], "genres": ["Comedy", "Crime|Drama"]})
        >>> catalogue = Catalogue(movies, action="title", crossed={"genre": "genres"})
        >>> catalogue.hierarchy
        Hierarchy of 3 levels...
    """

    def __init__(
        self,
        items: Any,
        action: Any,
        *,
        crossed: Any = None,
        nested: Any = None,
        numeric: Any = None,
        contexts: Any = None,
        visitors: Any = None,
        reward: Reward | None = None,
        unit: float | None = None,
        several: Any = "average",
        separator: Any = "|",
        missing: Any = "error",
        common: bool = True,
        means: Any = None,
        covs: Any = None,
        scales: Any = None,
    ):
        table = as_table(items, "Catalogue items")
        if not len(table):
            raise CatalogueError(
                "Catalogue items: the table has no rows; expected one for each item"
            )
        if not isinstance(common, bool):
            raise TypeError(f"Catalogue common: got {short(common)}; expected True or False")
        self.choices = as_choices(action, crossed, nested, numeric, common)
        self.action_column = self.choices.action[1]
        if reward is not None and not isinstance(reward, Reward):
            raise TypeError(
                f"Catalogue reward: got {short(reward)}; expected a reward family, such as Bernoulli()"
            )
        self.unit = None if unit is None else float(as_positive(unit, "Catalogue unit"))
        self.reward_given = reward
        options = Options(several, separator, missing, self.choices)
        self.parts = learn_parts(table, self.choices, options, common)
        self.labels = self.parts.labels
        self.laws = _as_laws(means, covs, scales, self.parts.names)
        self.contexts_from = contexts
        seen = None if visitors is None else as_table(visitors, "Catalogue visitors")
        self.encoding: Encoding | None = learn_encoding(contexts, seen)

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The declaration: levels with labels, scales learned unless they are given."""
        components = self._encoding().components
        unit = _unit(self.reward_given) if self.unit is None else self.unit
        wide = 100.0 * unit**2 if isinstance(self.reward, Gaussian) else 4.0
        levels = levels_of(self.parts, unit, wide, self.laws)
        return Hierarchy(levels, self.reward, len(components), components=components)

    @property
    def reward(self) -> Reward:
        """The family of rewards."""
        if self.reward_given is not None:
            return self.reward_given
        return Gaussian(dist.HalfNormal(1.0 if self.unit is None else self.unit))

    def contexts(self, frame: Any) -> Float[np.ndarray, "n d"]:
        """The contexts of the rows of a table, or of one visitor as a dict; always by the same encoding.

        Example:
            >>> import pandas as pd
            >>> people = pd.DataFrame({"age": [20, 40], "town": ["Oslo", "Rome"]})
            >>> drinks = pd.DataFrame({"drink": ["tea", "milk"]})
            >>> catalogue = Catalogue(drinks, "drink", contexts=["age", "town"], visitors=people)
            >>> catalogue.contexts({"age": 30, "town": "Rome"}).tolist()
            [[1.0, 0.0, 1.0]]
        """
        return self._encoding().encode(as_table(frame, "visitors"))

    def data(
        self, log: Any, reward: str, *, exposure: str | None = None, action: Any = None
    ) -> Data:
        """The observations of a log.

        Args:
            log: a table with a row for each observation: the item's label, what contexts are made of,
                and the reward.
            reward: the column of rewards; True and False are 1 and 0.
            exposure: the column that says how many rewards a row stands for; see `Data`.
            action: the column of the items' labels, by default called as in the table of items.
        """
        table = as_table(log, "log")
        actions = self.positions(table, action)
        rewards = numbers_of(table, reward)
        exposures = None if exposure is None else numbers_of(table, exposure)
        _check_rewards(table, self.reward, reward, rewards, exposure, exposures)
        contexts = self._encoding().encode(table)
        return Data(contexts, actions, rewards, exposures)

    def positions(self, log: Any, action: Any = None) -> Int[np.ndarray, " n"]:
        """The position of the item that each row of a log names.

        Args:
            log: a table.
            action: the column of the items' labels, by default called as in the table of items.
        """
        table = as_table(log, "log")
        column = self.action_column if action is None else action
        labels = label_column(table, column)
        places = self._places
        try:
            return np.array([places[label] for label in labels], np.int32)
        except KeyError:
            row = next(row for row, label in enumerate(labels) if label not in places)
            value, known = table.column(column)[row], listed(self.labels, 4)
            why = "is missing" if labels[row] is None else "is no item of the catalogue"
            table.refuse(row, column, value, f"{why}; its items are {known}")

    def learned_from(self, visitors: Any) -> "Catalogue":
        """The same catalogue, with the encoding of contexts learned from a table of visitors."""
        return self._copied(
            encoding=learn_encoding(self.contexts_from, as_table(visitors, "visitors"))
        )

    def changed(
        self,
        *,
        laws: Mapping[str, Mapping[str, Any]] | None = None,
        reward: Reward | None = None,
        unit: float | None = None,
    ) -> "Catalogue":
        """The same items and contexts with other laws; what is not given stays.

        Args:
            laws: level's name -> arguments of `Level`: mean, cov, scale.
            reward: the family of rewards.
            unit: of what is learned.
        """
        check_levels(laws or {}, self.parts.names, "laws")
        own = self.laws if laws is None else {name: dict(law) for name, law in laws.items()}
        return self._copied(
            laws=own,
            reward_given=self.reward_given if reward is None else reward,
            unit=self.unit if unit is None else float(as_positive(unit, "Catalogue unit")),
        )

    def weights(self, items: Any) -> dict[str, Any]:
        """The weights of new items on the levels right above the actions, for `Agent.add_actions`.

        Standardised as the items of the catalogue are. Labels never seen are what `missing` says.
        """
        return self.new_items(items).weights

    def new_items(self, items: Any) -> NewItems:
        """New items, and the nodes of the tree that come with them."""
        table = as_table(items, "new items")
        labels = action_labels(table, self.action_column)
        for row, label in enumerate(labels):
            if label in self._places:
                table.refuse(row, self.action_column, label, "is an item of the catalogue already")
        nodes: dict[str, list[NewNode]] = {}
        nested = None
        if self.parts.nested is not None:
            above, nodes = self.parts.nested[0].place(table)
            tree = self.parts.nested[0].with_new(nodes)
            nested = tree, tree.positions(above)
        own = self.parts._replace(
            labels=labels,
            crossed=tuple((crossed, crossed.weights(table)) for crossed, _ in self.parts.crossed),
            nested=nested,
            numeric=tuple((numeric, numeric.weights(table)) for numeric, _ in self.parts.numeric),
        )
        return NewItems(
            labels, action_weights(own), nodes, self._copied(parts=joined_parts(self.parts, own))
        )

    def save(self, path: Any) -> None:
        """Write the catalogue to a file, with its encoding of contexts; see `load`."""
        kept = {name: part for name, part in vars(self).items() if name not in _COMPUTED}
        Path(path).write_bytes(pickle.dumps((_FORMAT, kept)))

    @classmethod
    def load(cls, path: Any) -> "Catalogue":
        """The catalogue that `save` wrote.

        The file is a pickle, for an encoding may hold any transformer: read it only if you trust whoever
        wrote it, and with the same versions of formulaic and scikit-learn.

        Example:
            >>> import pandas as pd
            >>> Catalogue(pd.DataFrame({"shoe": ["boot", "clog"]}), "shoe").save("shoes")
            >>> Catalogue.load("shoes").labels
            ('boot', 'clog')
        """
        content = Path(path).read_bytes()
        try:
            written, kept = pickle.loads(content)
        except Exception as error:
            raise CatalogueError(f"{path} holds no catalogue: {error}") from error
        if written != _FORMAT:
            raise CatalogueError(
                f"{path} holds a catalogue of format {short(written)}, and this mixts reads {_FORMAT}: "
                "make it again from its table"
            )
        catalogue = object.__new__(cls)
        vars(catalogue).update(kept)
        return catalogue

    @property
    def places(self) -> dict[Hashable, int]:
        """Label of an item -> its position."""
        return dict(self._places)

    @cached_property
    def _places(self) -> dict[Hashable, int]:
        return {label: position for position, label in enumerate(self.labels)}

    def _encoding(self) -> Encoding:
        if self.encoding is None:
            raise ValueError(
                f"Catalogue contexts: the encoding of {short(self.contexts_from)} is not learned yet; pass "
                "visitors=<a table of visitors>, or call learned_from(visitors), which may be the log"
            )
        return self.encoding

    def _copied(self, **changes: Any) -> "Catalogue":
        copy = object.__new__(type(self))
        kept = {name: part for name, part in vars(self).items() if name not in _COMPUTED}
        vars(copy).update(kept | changes)
        copy.labels = copy.parts.labels
        return copy

    def __repr__(self) -> str:
        above = [f"{name} ({size:,})" for name, size in sizes_of(self.parts).items()]
        what = f" below {', '.join(above)}" if above else ""
        return f"Catalogue({len(self.labels):,} of level '{self.parts.action}'{what})"


def _unit(reward: Reward | None) -> float:
    """The noise of Gaussian rewards, where it is known, else one."""
    noise: Any = getattr(reward, "noise", 1.0)
    if not isinstance(reward, Gaussian) or isinstance(noise, Distribution):
        return 1.0
    return float(noise)


def _as_laws(means: Any, covs: Any, scales: Any, names: list[str]) -> dict[str, dict[str, Any]]:
    """Level's name -> what `Level` is given."""
    laws: dict[str, dict[str, Any]] = {}
    for what, given in (("mean", means), ("cov", covs), ("scale", scales)):
        if given is None:
            continue
        if not isinstance(given, Mapping):
            if what == "mean" or (what == "scale" and not isinstance(given, Distribution)):
                raise TypeError(
                    f"Catalogue {what}s: got {short(given)}; expected a dict by names of levels: "
                    f"{listed(names)}"
                )
            given = {name: given for name in names if name != "common"}
        check_levels(given, names, f"{what}s")
        for name, value in given.items():
            laws.setdefault(name, {})[what] = value
    return laws


def _check_rewards(
    table: Table,
    family: Reward,
    column: str,
    rewards: Float[np.ndarray, " n"],
    exposure: str | None,
    exposures: Float[np.ndarray, " n"] | None,
) -> None:
    """Refuse rewards that the family never has, by their row."""
    if exposures is not None:
        family.check_takes_exposure()
        wrong = np.flatnonzero(exposures <= 0)
        if wrong.size:
            row = int(wrong[0])
            table.refuse(row, exposure, float(exposures[row]), "is not positive")
    if isinstance(family, Gaussian) or not rewards.size:
        return
    support: Any = family.support(None if exposures is None else jnp.asarray(exposures))
    inside = np.broadcast_to(np.asarray(support(jnp.asarray(rewards))), rewards.shape)
    if not inside.all():
        row = int(np.flatnonzero(~inside)[0])
        table.refuse(
            row,
            column,
            float(rewards[row]),
            f"is no reward of {short(family)}; check the column, or declare another family",
        )
