"""Links lead somewhere in a checkout; mkdocs checks those of the site."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.joinpath("notebooks").glob("*.ipynb")),
    *sorted(ROOT.joinpath("docs").glob("**/*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")


def text_of(page: Path) -> str:
    if page.suffix != ".ipynb":
        return page.read_text(encoding="utf-8")
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def anchors(page: Path) -> set[str]:
    """What headings of a Markdown page are called in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_of(page: Path) -> list[str]:
    return ["".join(found) for found in LINK.findall(text_of(page))]


def test_there_are_links():
    assert sum(len(links_of(page)) > 0 for page in PAGES) > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in links_of(page):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_first_notebook_is_one_click_from_the_readme():
    assert "(notebooks/01_shared_effects.ipynb)" in text_of(ROOT / "README.md")
