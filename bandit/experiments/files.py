"""The files of a figure: pictures, tidy tables, and every round of every run; each written whole."""

import io
import re
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

from ..atomic_file import replace_file
from .picture import draw
from .result import Result

__all__ = ["NAMES", "TABLES", "is_written", "svg", "sweep", "write_figure"]

TABLES = ("summary", "totals", "curves", "claims")
NAMES = ("regret.png", "regret.svg", *(f"{table}.csv" for table in TABLES), "regret.nc")
# The same numbers make the same bytes: no date, and no random names of shapes.
SVG: Any = {"svg.hashsalt": "mixts", "svg.fonttype": "path"}
DIGITS = "%.7g"


def write_figure(result: Result, folder: Path) -> None:
    """Write all files of a figure into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = [_csv(getattr(result, name)()) for name in TABLES]
    contents = _png(result), svg(result), *tables, _netcdf(result, folder)
    for name, content in zip(NAMES, contents, strict=True):
        replace_file(folder / name, content)


def is_written(result: Result, folder: Path) -> bool:
    """Whether the files in `folder` are of this result, and not of another size or seed."""
    try:
        return (folder / "totals.csv").read_bytes() == _csv(result.totals())
    except FileNotFoundError:
        return False


def svg(result: Result) -> bytes:
    """The picture as SVG."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(SVG):
        draw(result).savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _png(result: Result) -> bytes:
    buffer = io.BytesIO()
    draw(result).savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def _csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, float_format=DIGITS, lineterminator="\n").encode()


def _netcdf(result: Result, folder: Path) -> bytes:
    data = result.to_xarray()
    size = {name: int(value) for name, value in result.size._asdict().items()}
    data.attrs = {"figure": result.figure.name, "title": result.figure.title, **size}
    packed: Any = {name: {"zlib": True, "complevel": 1} for name in data.data_vars}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".netcdf-") as temporary:
        path = Path(temporary) / "regret.nc"
        data.to_netcdf(path, engine="h5netcdf", encoding=packed)
        return path.read_bytes()


# The names of unfinished files of `replace_file`, of the folder of a NetCDF file, and of the file by which
# `reproduce` checks whether it can write.
UNFINISHED = re.compile(r"\.(.+\.(npz|svg|png|csv|nc|html)|writable)\.[0-9a-f]{16}|\.netcdf-\w+")


def sweep(folders: Iterable[Path], before: float) -> None:
    """Remove unfinished files that were last changed before a time, by the clock of their disk.

    What another process is writing just now is younger, and stays.
    """
    for path in (path for folder in folders for path in folder.iterdir()):
        if not UNFINISHED.fullmatch(path.name):
            continue
        with suppress(FileNotFoundError):  # another process may sweep too
            if path.stat().st_mtime < before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
