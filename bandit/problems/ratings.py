"""MovieLens ratings: read from GroupLens' files, or from the small data set that is shipped.

The shipped data are ml-latest-small by GroupLens (Harper and Konstan 2015), under GroupLens' own terms:
see `data/README.md`.
"""

import csv
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from jaxtyping import Float, Int

__all__ = ["Ratings", "read_ratings", "shipped_ratings"]

SHIPPED = Path(__file__).parent / "data" / "ml-latest-small.npz"
_LOWEST, _HIGHEST = 0.5, 5.0
_LAST_ID = 2**53  # ids go through an array of float64
_MOST_SAID = 100  # letters of a line that is wrong


class Ratings(NamedTuple):
    """Who rated what how. Users and movies are those with a rating, numbered from zero by their ids.

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
    columns = _columns(file)
    titles = _titles(file.with_name(f"movies{file.suffix}"))
    return as_ratings(columns[:, 0].astype(int), columns[:, 1].astype(int), columns[:, 2], titles)


def shipped_ratings() -> Ratings:
    """ml-latest-small: 100,836 ratings of 9,724 movies by 610 users."""
    try:
        with SHIPPED.open("rb") as stream, np.load(stream) as data:
            user, movie, half_stars = data["user"], data["movie"], data["half_stars"]
            movie_ids = data["movie_ids"]
            names = bytes(data["titles"]).decode().split("\n")
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise OSError(
            f"the ratings shipped with mixts cannot be read from {SHIPPED}: {error}; install mixts "
            "again, or give the path of a MovieLens data set"
        ) from error
    titles = dict(zip(movie_ids.tolist(), names, strict=True))
    return as_ratings(user.astype(int), movie_ids[movie].astype(int), half_stars / 2, titles)


def as_ratings(
    user_ids: Int[np.ndarray, " n"],
    movie_ids: Int[np.ndarray, " n"],
    stars: Float[np.ndarray, " n"],
    titles: dict[int, str],
) -> Ratings:
    """Ratings with users and movies numbered from zero."""
    users, user = np.unique(user_ids, return_inverse=True)
    movies, movie = np.unique(movie_ids, return_inverse=True)
    names = _different(
        [titles.get(number, f"movie {number}") for number in movies.tolist()], movies
    )
    return Ratings(user, movie, stars.astype(np.float64), users, movies, names)


def _different(titles: list[str], ids: Int[np.ndarray, " movies"]) -> tuple[str, ...]:
    """The titles, with the id added where two movies share one."""
    counts: dict[str, int] = {}
    for title in titles:
        counts[title] = counts.get(title, 0) + 1
    return tuple(
        title if counts[title] == 1 else f"{title} [{number}]"
        for title, number in zip(titles, ids.tolist(), strict=True)
    )


def _ratings_file(path: Path) -> Path:
    names = ("ratings.dat", "ratings.csv")
    if path.is_dir():
        for name in names:
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


def _columns(file: Path) -> Float[np.ndarray, "n 3"]:
    """Users, movies and stars, every line checked."""
    rows = []
    for number, fields in _lines(file):
        rating = _rating(fields)
        if rating is None:
            found = f"{_short(fields)} is not a user, a movie, a rating and a time"
            _damaged(file, number, found)
        if not _LOWEST <= rating[2] <= _HIGHEST:
            _damaged(file, number, f"a rating of {rating[2]:g}, which is not from 0.5 to 5")
        rows.append(rating)
    if not rows:
        _damaged(file, 1, "no ratings")
    columns = np.asarray(rows, np.float64)
    _, first = np.unique(columns[:, :2], axis=0, return_index=True)
    if len(first) < len(columns):
        again = int(np.setdiff1d(np.arange(len(columns)), first)[0])
        user, movie, _ = rows[again]
        line = again + (2 if file.suffix == ".csv" else 1)
        _damaged(file, line, f"a second rating of movie {movie} by user {user}")
    return columns


def _rating(fields: list[str]) -> tuple[int, int, float] | None:
    """User, movie and stars; None if that is not what the fields hold."""
    try:
        user, movie, stars, _ = int(fields[0]), int(fields[1]), float(fields[2]), float(fields[3])
    except (ValueError, IndexError):
        return None
    right = len(fields) == 4 and 0 <= user <= _LAST_ID and 0 <= movie <= _LAST_ID
    return (user, movie, stars) if right else None


def _short(fields: list[str]) -> str:
    """Fields as they are said: a line of a file that is no text may be as long as the file."""
    said = repr(fields)
    return said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}..."


def _lines(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Fields of each line, with its number; the header of a `.csv` is left out."""
    # Titles of MovieLens 1M are in Latin-1, which reads any file: what is wrong shows in the fields.
    with file.open(encoding="utf-8" if file.suffix == ".csv" else "latin-1", newline="") as stream:
        try:
            if file.suffix == ".dat":
                for number, line in enumerate(stream, 1):
                    yield number, line.rstrip("\r\n").split("::")
                return
            for number, fields in enumerate(csv.reader(stream), 1):
                if number > 1:
                    yield number, fields
                elif fields and fields[0].isdecimal():
                    _damaged(file, 1, f"{_short(fields)} where the names of the columns should be")
        except (UnicodeDecodeError, csv.Error) as error:
            _damaged(file, 1, f"text that cannot be read ({error})")


def _titles(file: Path) -> dict[int, str]:
    """Titles by id; none where there is no such file."""
    if not file.is_file():
        return {}
    titles = {}
    for number, fields in _lines(file):
        if len(fields) != 3 or not fields[0].isdecimal():
            _damaged(file, number, f"{_short(fields)} is not a movie, a title and genres")
        titles[int(fields[0])] = fields[1]
    return titles


def _damaged(file: Path, line: int, found: str) -> NoReturn:
    expected = (
        "UserID::MovieID::Rating::Timestamp"
        if file.suffix == ".dat"
        else "a header and then userId,movieId,rating,timestamp"
    )
    if file.stem == "movies":
        expected = "MovieID::Title::Genres" if file.suffix == ".dat" else "movieId,title,genres"
    raise ValueError(
        f"MovieLens file '{file}', line {line}: {found}; expected lines of {expected}, as GroupLens "
        "publishes them: download the data set again, or leave the path out to use the ratings that "
        "come with mixts"
    )
