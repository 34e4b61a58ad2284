"""Every Python block of the README and of the documentation runs as written."""

import re
from pathlib import Path

import pytest

from sampling import unoptimised

ROOT = Path(__file__).parents[2]
README, PAGES = ROOT / "README.md", sorted(ROOT.joinpath("docs").glob("**/*.md"))
BLOCKS = [
    pytest.param(block, id=f"{page.name} {i}", marks=[] if page is README else pytest.mark.pages)
    for page in [README, *PAGES]
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
]


def test_there_are_blocks():
    assert len(PAGES) >= 1
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str, tmp_path: Path, monkeypatch, capsys):
    """In this process, where blocks share what they import, and warnings are errors."""
    monkeypatch.chdir(tmp_path)
    with unoptimised():
        exec(compile(block, "block", "exec"), {"__name__": "block"})
    assert capsys.readouterr().out.strip()
