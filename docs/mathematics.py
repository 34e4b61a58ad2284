"""Formulas as MathML, which browsers show without a script: a hook of mkdocs."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# What the Markdown extension `arithmatex` leaves in pages, and what notebooks hold.
_PAGES = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.+?)\\[)\]]</\1>', re.DOTALL)
_NOTEBOOKS = re.compile(r"(\$\$)(.+?)\$\$|(?<![\\$\w])\$([^$]+?)\$(?![\w$])", re.DOTALL)
_MARKDOWN_CELL = re.compile(
    r'<div class="jp-RenderedHTMLCommon jp-RenderedMarkdown.*?</div>', re.DOTALL
)
_CODE = re.compile(r"(<(?:code|pre)\b.*?</(?:code|pre)>)", re.DOTALL)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Turn every formula of a page into MathML."""
    if page.file.src_uri.endswith(".ipynb"):
        return _MARKDOWN_CELL.sub(lambda cell: _cell(cell[0]), content)
    return _PAGES.sub(lambda found: _formula(found[3], shown=found[2] == "["), content)


def _cell(text: str) -> str:
    """A Markdown cell with its formulas; code is left alone."""
    parts = _CODE.split(text)
    return "".join(
        part if i % 2 else _NOTEBOOKS.sub(_of_notebook, part) for i, part in enumerate(parts)
    )


def _of_notebook(found: re.Match[str]) -> str:
    return _formula(found[2] or found[3], shown=bool(found[1]))


def _formula(tex: str, *, shown: bool) -> str:
    return convert(html.unescape(tex).strip(), display="block" if shown else "inline")
