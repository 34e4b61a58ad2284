"""MovieLens ratings: read from GroupLens' files, or from the small data set that comes with mixts.

The shipped data are ml-latest-small by GroupLens (Harper and Konstan 2015), under GroupLens' own terms:
see `data/README.md`.
"""

import csv
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from jaxtyping import Float, Int

__all__ = [
    "SHIPPED",
    "Ratings",
    "as_ratings",
    "movielens_tables",
    "read_ratings",
    "shipped_ratings",
]

SHIPPED = Path(__file__).parent / "data" / "ml-latest-small.npz"
_ARRAYS = ("user", "movie", "half_stars", "movie_ids", "titles", "genres")
_LAST_ID = 2**53  # whole numbers up to here are exact in float64
_MOST_SHOWN = 100  # letters of a wrong line: if the file is not text, it may be as long as the file
_COLUMNS = {
    "ratings.dat": "UserID::MovieID::Rating::Timestamp",
    "ratings.csv": "a header and then userId,movieId,rating,timestamp",
    "movies.dat": "MovieID::Title::Genres",
    "movies.csv": "movieId,title,genres",
}


class Ratings(NamedTuple):
    """Ratings of movies by users. Those with a rating are numbered from zero in the order of their ids.

    Attributes:
        user: (n,) number of the user.
        movie: (n,) number of the movie.
        stars: (n,) the rating, 0.5 to 5.
        user_ids: the data set's id of each user.
        movie_ids: the data set's id of each movie.
        titles: a different name for each movie.
    """

    user: Int[np.ndarray, " n"]
    movie: Int[np.ndarray, " n"]
    stars: Float[np.ndarray, " n"]
    user_ids: Int[np.ndarray, " users"]
    movie_ids: Int[np.ndarray, " movies"]
    titles: tuple[str, ...]


def read_ratings(path: Any) -> Ratings:
    """Ratings from a file `ratings.dat` (MovieLens 1M) or `ratings.csv` (ml-latest and others).

    Args:
        path: the file, or the folder that holds it. Titles come from `movies.dat` or `movies.csv` in
            the same folder; without it, or for a movie it lacks, a title is "movie <id>".
    """
    file = _ratings_file(Path(path))
    stars = {}
    for line, fields in _lines(file):
        rating = _rating(fields)
        if rating is None:
            _damaged(file, line, f"{_short(fields)} is not a user, a movie, a rating and a time")
        user, movie, value = rating
        if not 0.5 <= value <= 5.0:
            _damaged(file, line, f"a rating of {value:g}, which is not from 0.5 to 5")
        if (user, movie) in stars:
            _damaged(file, line, f"a second rating of movie {movie} by user {user}")
        stars[user, movie] = value
    if not stars:
        _damaged(file, 1, "no ratings")
    users, movies = np.array(list(stars)).T
    titles = _titles(file.with_name(f"movies{file.suffix}"))
    return as_ratings(users, movies, np.array(list(stars.values())), titles)


def movielens_tables() -> tuple[Any, Any]:
    """The shipped ml-latest-small as GroupLens' two tables, without the times: movies and ratings.

    Movies have the columns `movieId`, `title` and `genres` ("Comedy|Drama"), ratings `userId`, `movieId`
    and `rating`.

    Example:
        >>> movies, ratings = movielens_tables()
        >>> movies["genres"][0], len(ratings)
        ('Adventure|Animation|Children|Comedy|Fantasy', 100836)
    """
    import pandas as pd

    shipped = _shipped()
    ids = shipped["movie_ids"].astype(int)
    texts = {name: bytes(shipped[name]).decode().split("\n") for name in ("titles", "genres")}
    movies = {"movieId": ids, "title": texts["titles"], "genres": texts["genres"]}
    ratings = {
        "userId": shipped["user"].astype(int),
        "movieId": ids[shipped["movie"]],
        "rating": shipped["half_stars"] / 2,
    }
    return pd.DataFrame(movies), pd.DataFrame(ratings)


def shipped_ratings() -> Ratings:
    """ml-latest-small: 100,836 ratings of 9,724 movies by 610 users."""
    shipped = _shipped()
    movie_ids = shipped["movie_ids"]
    names = bytes(shipped["titles"]).decode().split("\n")
    titles = dict(zip(movie_ids.tolist(), names, strict=True))
    movies = movie_ids[shipped["movie"]].astype(int)
    return as_ratings(shipped["user"].astype(int), movies, shipped["half_stars"] / 2, titles)


def _shipped() -> dict[str, np.ndarray]:
    """The arrays that come with mixts."""
    try:
        with SHIPPED.open("rb") as stream, np.load(stream) as data:
            shipped = {name: data[name] for name in _ARRAYS}
            bytes(shipped["titles"]).decode()
            return shipped
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise OSError(
            f"the ratings shipped with mixts cannot be read from {SHIPPED}: {error}; install mixts "
            "again, or give the path of a MovieLens data set"
        ) from error


def as_ratings(
    user_ids: Int[np.ndarray, " n"],
    movie_ids: Int[np.ndarray, " n"],
    stars: Float[np.ndarray, " n"],
    titles: dict[int, str],
) -> Ratings:
    """Ratings with users and movies numbered from zero, and the id added to titles that are not unique."""
    users, user = np.unique(user_ids, return_inverse=True)
    movies, movie = np.unique(movie_ids, return_inverse=True)
    names = {number: titles.get(number, f"movie {number}") for number in movies.tolist()}
    count = Counter(names.values())
    unique = (name if count[name] == 1 else f"{name} [{i}]" for i, name in names.items())
    return Ratings(user, movie, stars.astype(np.float64), users, movies, tuple(unique))


def _ratings_file(path: Path) -> Path:
    if path.is_dir():
        for name in ("ratings.dat", "ratings.csv"):
            if (path / name).is_file():
                return path / name
    elif path.is_file() and path.suffix in (".dat", ".csv"):
        return path
    found = "no such file" if not path.exists() else "a folder" if path.is_dir() else "a file"
    raise FileNotFoundError(
        f"MovieLens ratings: '{path}' is {found}; expected ratings.dat (MovieLens 1M) or ratings.csv "
        "(ml-latest-small), or a folder that holds one: download a data set from GroupLens and unpack "
        "it, or leave the path out to use the ratings that come with mixts"
    )


def _rating(fields: list[str]) -> tuple[int, int, float] | None:
    """User, movie and stars; None if the fields are something else."""
    try:
        user, movie, stars, _ = int(fields[0]), int(fields[1]), float(fields[2]), float(fields[3])
    except (ValueError, IndexError):
        return None
    right = len(fields) == 4 and min(user, movie) >= 0 and max(user, movie) <= _LAST_ID
    return (user, movie, stars) if right else None


def _titles(file: Path) -> dict[int, str]:
    """Titles by id; none where there is no such file."""
    titles = {}
    for line, fields in _lines(file) if file.is_file() else []:
        if len(fields) != 3 or not fields[0].isdecimal():
            _damaged(file, line, f"{_short(fields)} is not a movie, a title and genres")
        titles[int(fields[0])] = fields[1]
    return titles


def _lines(file: Path) -> list[tuple[int, list[str]]]:
    """Fields of each line, with its number; the header of a `.csv` is left out."""
    # Titles of MovieLens 1M are in Latin-1, which reads any file: what is wrong shows in the fields.
    has_header = file.suffix == ".csv"
    with file.open(encoding="utf-8" if has_header else "latin-1", newline="") as stream:
        try:
            if not has_header:
                return [(i, line.rstrip("\r\n").split("::")) for i, line in enumerate(stream, 1)]
            lines = list(enumerate(csv.reader(stream), 1))
        except (UnicodeDecodeError, csv.Error) as error:
            _damaged(file, 1, f"text that cannot be read ({error})")
    if lines and lines[0][1] and lines[0][1][0].isdecimal():
        _damaged(file, 1, f"{_short(lines[0][1])} where the names of the columns should be")
    return lines[1:]


def _short(fields: list[str]) -> str:
    text = repr(fields)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _damaged(file: Path, line: int, found: str) -> NoReturn:
    kind = "movies" if file.stem == "movies" else "ratings"
    raise ValueError(
        f"MovieLens file '{file}', line {line}: {found}; expected lines of "
        f"{_COLUMNS[kind + file.suffix]}, as GroupLens publishes them: download the data set again, or "
        "leave the path out to use the ratings that come with mixts"
    )
