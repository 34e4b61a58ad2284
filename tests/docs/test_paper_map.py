"""`docs/paper.md` maps every part of the paper that docstrings cite, to names that exist."""

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT.joinpath("docs/paper.md").read_text(encoding="utf-8")
# Parts of the paper are cited in one form; those of other papers are "Sec. 4.1" or "Eqs. 4 and 5".
CITATION = re.compile(
    r"\b(?:Eq\.|Section|Appendix|Proposition|Theorem|Lemma|Algorithm)\s(?:\d[\d.]*\d|\d|[A-G]\b(?:\.\d)?)"
)


def test_every_part_that_is_cited_is_on_the_map():
    sources = [
        path.read_text(encoding="utf-8")
        for folder in ("models", "inference", "bandit")
        for path in ROOT.joinpath(folder).rglob("*.py")
    ]
    cited = {part for text in sources for part in CITATION.findall(text)}
    assert len(cited) > 20
    assert cited <= set(CITATION.findall(PAGE))


def test_every_name_exists():
    names = set(re.findall(r"\]\[(mixts\.[\w.]+)\]", PAGE))
    assert len(names) > 20
    for name in names:
        module, attribute = name.rsplit(".", 1)
        assert hasattr(importlib.import_module(module), attribute), name


def test_every_file_exists():
    files = set(re.findall(r"`((?:models|inference|bandit)/[\w/]+\.py)`", PAGE))
    assert len(files) > 5
    for file in files:
        assert ROOT.joinpath(file).exists(), file
