"""Formulas of pages and notebooks become MathML; code is left alone."""

from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from scripts import script

MATHML = "{http://www.w3.org/1998/Math/MathML}"


def cell(text: str) -> str:
    return f'<div class="jp-RenderedHTMLCommon jp-RenderedMarkdown">{text}</div>'


@pytest.fixture(scope="module")
def show():
    """The page that is shown for some HTML of a source file."""
    hook = script("docs/mathematics.py").on_page_content

    def shown(content: str, source: str) -> str:
        return hook(content, page=SimpleNamespace(file=SimpleNamespace(src_uri=source)))

    return shown


def formulas(page: str) -> list[tuple[str | None, str]]:
    """How each formula stands on a page, and the characters in it."""
    found = ElementTree.fromstring(page).iter(f"{MATHML}math")
    return [(formula.get("display"), "".join(formula.itertext())) for formula in found]


def test_formulas_of_a_page(show):
    inline = '<span class="arithmatex">\\(x_1 &lt; 2\\)</span>'
    own_line = '<div class="arithmatex">\\[\na + b\n\\]</div>'
    page = show(f"<div>So {inline} and {own_line}</div>", "concepts.md")
    assert formulas(page) == [("inline", "x1<2"), ("block", "a+b")]
    assert "arithmatex" not in page


def test_formulas_of_a_notebook(show):
    page = show(cell("With $x_1 &lt; 2$ and\n$$a\n+ b$$"), "notebooks/one.ipynb")
    assert formulas(page) == [("inline", "x1<2"), ("block", "a+b")]
    assert "$" not in page


@pytest.mark.parametrize(
    "content",
    [
        cell("<code>$x$</code>"),
        cell("<pre>a = '$x$ and $y$'</pre>"),
        cell(r"it costs \$5, or \$6"),
        cell("between US$5 and US$6"),
        '<div class="jp-OutputArea">$x$</div>',
    ],
)
def test_what_is_no_formula_stays(show, content):
    assert show(content, "notebooks/one.ipynb") == content


def test_dollars_of_a_page_stay(show):
    """Markdown has found the formulas of pages already."""
    assert show("<p>$x$</p>", "concepts.md") == "<p>$x$</p>"
