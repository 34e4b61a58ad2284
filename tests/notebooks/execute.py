"""Execute the notebooks, several at a time: `make notebooks`; `make notebooks-keep` keeps what they show.

A kernel listens on sockets in a folder of this run's own, not on ports: kernels that start at the same
moment can be given the same port, and one of them never answers.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description="Execute notebooks.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="all of them, if none is named")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time")
    parser.add_argument("--keep", action="store_true", help="keep what the notebooks show")
    options = parser.parse_args()
    os.environ["MIXTS_PROGRESS"] = "0"  # how long a cell took here is no part of a notebook
    notebooks = options.notebooks or sorted(ROOT.joinpath("notebooks").glob("*.ipynb"))
    with tempfile.TemporaryDirectory() as sockets:
        passed = asyncio.run(execute(notebooks, options.workers, options.keep, Path(sockets)))
    failed = len(passed) - sum(passed)
    print(f"{sum(passed)} passed, {failed} failed")
    sys.exit(failed > 0)


async def execute(notebooks: Sequence[Path], workers: int, keep: bool, sockets: Path) -> list[bool]:
    """Which of the notebooks ran from top to bottom."""
    turns = asyncio.Semaphore(workers)

    async def in_turn(number: int, path: Path) -> bool:
        async with turns:
            return await executed(path, keep, sockets / str(number))

    return await asyncio.gather(*(in_turn(*each) for each in enumerate(notebooks)))


async def executed(path: Path, keep: bool, socket: Path) -> bool:
    """Whether a notebook ran from top to bottom; its kernel's sockets are named `socket`-1, -2, ..."""
    start = time.monotonic()
    notebook = nbformat.read(path, as_version=4)
    config = Config(KernelManager={"transport": "ipc", "ip": str(socket)})
    client = NotebookClient(
        notebook,
        config=config,
        record_timing=False,
        startup_timeout=300,  # seconds; a busy machine takes long to import
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        await client.async_execute()
    except (CellExecutionError, RuntimeError) as error:  # A kernel that died is a RuntimeError.
        print(f"FAILED {path.name}\n{error}", flush=True)
        return False
    if keep:
        nbformat.write(notebook, path)
    print(f"{time.monotonic() - start:4.0f} s  {path.name}", flush=True)
    return True


if __name__ == "__main__":
    main()
