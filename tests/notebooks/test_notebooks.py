"""What notebooks hold as they are kept; `make notebooks` executes them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(ROOT.joinpath("notebooks").glob("*.ipynb"))
MOST_LINES = 40  # of an output: more would be a scroll of numbers


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def cells(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return json.loads(request.param.read_text(encoding="utf-8"))["cells"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def of_kind(cells: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [cell for cell in cells if cell["cell_type"] == kind]


def test_there_are_nine_in_order():
    assert [path.name[:3] for path in NOTEBOOKS] == [f"{n:02}_" for n in range(1, 10)]


def test_every_one_has_its_place_in_the_documentation():
    pages = re.findall(r"notebooks/(\w+\.ipynb)", ROOT.joinpath("mkdocs.yml").read_text())
    assert pages == [path.name for path in NOTEBOOKS]


def test_it_was_executed_from_top_to_bottom(cells):
    code = of_kind(cells, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))


def test_outputs_are_short_and_without_complaint(cells):
    for cell in of_kind(cells, "code"):
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr", output["text"]
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            assert "".join(text).count("\n") < MOST_LINES


def test_there_are_pictures_statements_and_exercises(cells):
    code, prose = of_kind(cells, "code"), of_kind(cells, "markdown")
    pictures = [o for cell in code for o in cell["outputs"] if "image/png" in o.get("data", {})]
    assert len(pictures) >= 2
    assert sum(source(cell).count("assert ") for cell in code) >= 3
    headings = re.findall(r"^## (.+)$", "\n".join(map(source, prose)), flags=re.MULTILINE)
    assert {"Exercises", "Solutions"} <= set(headings)
    assert headings.index("Exercises") < headings.index("Solutions")


def test_a_picture_comes_before_the_first_displayed_formula(cells):
    shown = [
        "picture" if cell["cell_type"] == "code" else "formula"
        for cell in cells
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
        or (cell["cell_type"] == "markdown" and "$$" in source(cell))
    ]
    assert shown[0] == "picture"
