"""Packs ml-latest-small: `python -m mixts.bandit.problems.pack_movielens FOLDER` writes what mixts ships.

Ratings are kept up to the day the data set's README ends on; some copies have had others appended. The
counts of the README are then checked, so the result is the data set as GroupLens published it.
"""

import csv
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from .ratings import SHIPPED

__all__ = ["pack"]

_END = datetime(2018, 9, 25, tzinfo=UTC).timestamp()
_COUNTS = (100836, 610, 9724)  # ratings, users, movies with a rating


def pack(folder: Path, target: Path = SHIPPED) -> None:
    """Write `target` from `ratings.csv` and `movies.csv` of a folder.

    Arrays: `user` and `half_stars` of each rating, `movie` as a position in `movie_ids`, and `titles`
    as UTF-8 with a line for each movie.
    """
    with (folder / "ratings.csv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in list(csv.reader(stream))[1:] if int(row[3]) < _END]
    with (folder / "movies.csv").open(encoding="utf-8", newline="") as stream:
        titles = {int(row[0]): row[1] for row in list(csv.reader(stream))[1:]}
    user = np.array([int(row[0]) for row in rows])
    movie_ids, movie = np.unique([int(row[1]) for row in rows], return_inverse=True)
    counts = len(rows), len(np.unique(user)), len(movie_ids)
    if counts != _COUNTS:
        raise ValueError(
            f"'{folder}' holds {counts} ratings, users and movies; expected {_COUNTS}: download "
            "ml-latest-small again"
        )
    text = "\n".join(titles[number] for number in movie_ids.tolist())
    target.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        target,
        user=user.astype(np.uint16),
        movie=movie.astype(np.uint16),
        half_stars=np.array([round(2 * float(row[2])) for row in rows], np.uint8),
        movie_ids=movie_ids.astype(np.uint32),
        titles=np.frombuffer(text.encode(), np.uint8),
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("expected one argument: the folder that holds ratings.csv and movies.csv")
    pack(Path(sys.argv[1]))
