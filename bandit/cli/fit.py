"""`mixts fit`: what a log says of the items of a table, from two CSV files."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from ...models import Bernoulli, Catalogue, Poisson, Reward
from ..tables.fit import Fit, fit

__all__ = ["FAMILIES", "run_fit"]

# Without a family rewards are Gaussian with a noise that is learned.
FAMILIES: dict[str, Callable[[], Reward] | None] = {
    "gaussian": None,
    "bernoulli": Bernoulli,
    "poisson": Poisson,
}
_SHOWN = 20  # rows of a table


def run_fit(options: argparse.Namespace) -> None:
    """Fit, print what was learned, and write tables and pictures."""
    found = _fitted(options)
    options.out.mkdir(parents=True, exist_ok=True)
    effects, items = found.effects(), found.items().sort_values("mean", ascending=False)
    effects.to_csv(options.out / "effects.csv", index=False)
    items.to_csv(options.out / "items.csv")
    print(found.hierarchy, found, sep="\n\n")
    numbers = found.numbers()
    if len(numbers):
        print("\n", numbers.round(4).to_string(), sep="")
    print("\nEffects\n", effects.head(_SHOWN).round(4).to_string(index=False), sep="")
    print("\nItems, for the average visitor\n", items.head(_SHOWN).round(4).to_string(), sep="")
    found.plot().savefig(options.out / "effects.png", dpi=150, bbox_inches="tight")
    print(f"\nwritten to {options.out}: effects.csv, items.csv, effects.png")


def _fitted(options: argparse.Namespace) -> Fit:
    try:
        return _fit_of(options)
    except ValueError as error:  # of a table that does not fit, or a column that is not there
        return options.error(str(error))


def _fit_of(options: argparse.Namespace) -> Fit:
    family = FAMILIES[options.family]
    catalogue = Catalogue(
        _read(options.items),
        options.action,
        crossed=options.crossed,
        nested=options.nested,
        numeric=options.numeric,
        contexts=options.contexts,
        missing=options.missing,
        reward=None if family is None else family(),
    )
    return fit(
        catalogue,
        _read(options.log),
        reward=options.reward,
        exposure=options.exposure,
        numbers=options.numbers,
        seed=options.seed,
    )


def _read(path: Path) -> Any:
    return pd.read_csv(path)
