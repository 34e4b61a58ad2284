"""A catalogue of 1,000,000 items with three crossed columns and a tree of four: time and memory.

Both are of this process: CPU seconds from the table to the hierarchy, and the most memory it held, the
table of items included.
"""

import sys
import time

import numpy as np
import pandas as pd
from timing import peak_memory, verdict

from mixts.models import Catalogue

ITEMS = 1_000_000
MOST_SECONDS, MOST_BYTES = 20.0, 2 * 2**30


def items() -> pd.DataFrame:
    """Text in all columns; tags are two in a cell, and the tree has 20 / 200 / 2,000 / 20,000 nodes."""
    rng = np.random.default_rng(0)
    leaf = rng.integers(0, 20_000, ITEMS)

    def text(prefix: str, numbers: np.ndarray) -> np.ndarray:
        names = np.array([f"{prefix} {i}" for i in range(numbers.max() + 1)], object)
        return names[numbers]

    columns = {
        "item": np.array([f"item {i}" for i in range(ITEMS)], object),
        "brand": text("brand", rng.integers(0, 1000, ITEMS)),
        "colour": text("colour", rng.integers(0, 50, ITEMS)),
        "tags": text("warm", rng.integers(0, 30, ITEMS))
        + "|"
        + text("dry", rng.integers(0, 30, ITEMS)),
    }
    columns |= {f"level_{i}": text("node", leaf // 10 ** (3 - i)) for i in range(4)}
    return pd.DataFrame(columns)


def main() -> bool:
    table = items()
    start = time.process_time()
    catalogue = Catalogue(
        table,
        "item",
        crossed=["brand", "colour", "tags"],
        nested=[f"level_{i}" for i in range(4)],
    )
    print(catalogue.hierarchy)
    seconds = time.process_time() - start
    good = [
        verdict("CPU seconds for 1,000,000 items", seconds, MOST_SECONDS),
        verdict("GiB held at most", peak_memory() / 2**30, MOST_BYTES / 2**30),
    ]
    return all(good)


if __name__ == "__main__":
    sys.exit(not main())
