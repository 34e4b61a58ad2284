"""Every Python block of the README and of the documentation runs as written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.joinpath("docs").glob("**/*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name} {i}")
    for page in PAGES
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
]


def test_there_are_blocks():
    assert len(PAGES) >= 2
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        cwd=tmp_path,
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},  # compiling is most of the time
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
