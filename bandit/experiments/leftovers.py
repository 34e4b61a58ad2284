"""What a killed process had not finished writing: files that nobody will ever rename."""

import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["sweep"]

# As `replace_file` names what is on its way, `write_figure` the folder of a NetCDF file, and `reproduce`
# the file by which it sees whether it can write.
_UNFINISHED = re.compile(r"\.(.+\.(npz|svg|png|csv|nc|html)|writable)\.[0-9a-f]{16}|\.netcdf-\w+")


def sweep(folders: Iterable[Path], before: float) -> None:
    """Remove unfinished files that were last touched before a moment, in the clock of their disk.

    What another process is writing just now is younger, and stays.
    """
    for folder in folders:
        for path in folder.iterdir():
            if not _UNFINISHED.fullmatch(path.name):
                continue
            with suppress(FileNotFoundError):  # another process may sweep too
                if path.stat().st_mtime < before:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
