"""Packs ml-latest-small: `python -m mixts.bandit.problems.pack_movielens FOLDER` writes what mixts ships.

Ratings are kept up to the day the data set's README ends on; some copies have had others appended. The
counts of the README are then checked, so the result is the data set as GroupLens published it.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from .ratings import SHIPPED

__all__ = ["pack"]

_END = datetime(2018, 9, 25, tzinfo=UTC).timestamp()
_COUNTS = (100836, 610, 9724)  # ratings, users, movies with a rating


def pack(folder: Path, target: Path = SHIPPED) -> None:
    """Write `target` from `ratings.csv` and `movies.csv` of a folder.

    Arrays: `user` and `half_stars` of each rating, `movie` as a position in `movie_ids`, and `titles`
    and `genres` as UTF-8 with a line for each movie.
    """
    ratings = pd.read_csv(folder / "ratings.csv")
    ratings = ratings[ratings["timestamp"] < _END]
    movies = pd.read_csv(folder / "movies.csv", index_col="movieId", keep_default_na=False)
    movie_ids, movie = np.unique(ratings["movieId"], return_inverse=True)
    counts = len(ratings), ratings["userId"].nunique(), len(movie_ids)
    if counts != _COUNTS:
        raise ValueError(
            f"'{folder}' holds {counts} ratings, users and movies; expected {_COUNTS}: download "
            "ml-latest-small again"
        )
    target.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        target,
        user=ratings["userId"].to_numpy(np.uint16),
        movie=movie.astype(np.uint16),
        half_stars=(2 * ratings["rating"]).round().to_numpy(np.uint8),
        movie_ids=movie_ids.astype(np.uint32),
        titles=_as_bytes(movies.loc[movie_ids, "title"].to_list()),
        genres=_as_bytes(movies.loc[movie_ids, "genres"].to_list()),
    )


def _as_bytes(texts: list[str]) -> np.ndarray:
    return np.frombuffer("\n".join(texts).encode(), np.uint8)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("expected one argument: the folder that holds ratings.csv and movies.csv")
    pack(Path(sys.argv[1]))
