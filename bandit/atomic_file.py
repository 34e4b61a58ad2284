"""Files that are replaced whole or not at all."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

__all__ = ["replace_file", "sync_folder"]


def replace_file(path: Path, content: bytes) -> None:
    """Write beside the file and rename, so that a full disk or a killed process spoils nothing.

    When it returns, content and name are on the disk: both would survive a loss of power. Errors name
    the file, and not the one beside it.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Put on the disk which files a folder holds; a renamed or new file may be lost before."""
    if os.name == "nt":  # where a folder cannot be opened, and renaming is on the disk by itself
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
