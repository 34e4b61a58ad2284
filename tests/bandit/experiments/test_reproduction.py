"""`reproduce`: files that say the same as the simulation, and the same bytes after any interruption."""

import os
import shutil
import signal
import time
from html.parser import HTMLParser

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from mixts.bandit import simulate
from mixts.bandit.experiments import reproduce
from mixts.bandit.experiments.files import TABLES
from tiny_figures import SIZE, contents, start, tiny


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def result(out):
    (result,) = reproduce([tiny()], out, SIZE, progress=False, options=" --runs 3")
    return result


@pytest.fixture(scope="module")
def simulation():
    panel = tiny().panels[0]
    return simulate(
        panel.problem(), panel.policies, SIZE.horizon, SIZE.runs, SIZE.seed, progress=False
    )


@pytest.mark.slow
def test_tables_say_what_was_played(out, result, simulation):
    summary, totals, curves, claims = (pd.read_csv(out / "tiny" / f"{name}.csv") for name in TABLES)
    for policy, regret in simulation.regret.items():
        here = (summary["panel"] == "K = 3") & (summary["policy"] == policy)
        expected = simulation.summary().loc[policy]
        assert summary[here]["mean"].item() == pytest.approx(expected["mean"], rel=1e-6)
        assert summary[here]["se"].item() == pytest.approx(expected["se"], rel=1e-6)
        here = (totals["panel"] == "K = 3") & (totals["policy"] == policy)
        np.testing.assert_allclose(totals[here]["regret"], regret.sum(1), rtol=1e-5)
        here = (curves["panel"] == "K = 3") & (curves["policy"] == policy)
        np.testing.assert_allclose(curves[here]["mean"], simulation.mean()[policy], rtol=1e-5)
        assert list(curves[here]["round"]) == list(range(1, SIZE.horizon + 1))
    difference = simulation.regret["chance"].sum(1) - simulation.regret["LinTS"].sum(1)
    assert claims["difference"][0] == pytest.approx(difference.mean(), rel=1e-5)
    assert claims["se"][0] == pytest.approx(difference.std(ddof=1) / 3**0.5, rel=1e-5)
    assert list(claims["verdict"]) == [ordering.verdict for ordering in result.orderings()]


def test_every_round_is_in_the_netcdf_file(out, result, simulation):
    with xr.open_dataset(out / "tiny" / "regret.nc", engine="h5netcdf") as data:
        assert data.sizes == {"panel": 2, "policy": 2, "run": 3, "round": 40}
        assert data.attrs["seed"] == SIZE.seed
        for policy, regret in simulation.regret.items():
            here = data.sel(panel="K = 3", policy=policy)
            np.testing.assert_array_equal(here["regret"], regret)
            np.testing.assert_array_equal(here["action"], simulation.actions[policy])


def test_a_bound_is_a_line_of_its_panel(result):
    assert list(result.lines["tiny K=4"]) == ["LinTS", "chance", "bound"]
    bound = result.lines["tiny K=4"]["bound"]
    assert bound.regret.shape == (SIZE.runs, len(bound.rounds))
    assert (np.diff(bound.regret, axis=1) > 0).all()
    assert (bound.totals > result.lines["tiny K=4"]["LinTS"].totals).all()


def test_pictures(out, result):
    picture = matplotlib.image.imread(out / "tiny" / "regret.png")
    assert picture.shape[1] > picture.shape[0] > 300
    drawn = (out / "tiny" / "regret.svg").read_text()
    assert "<svg" in drawn
    assert "<dc:date>" not in drawn


class Page(HTMLParser):
    """What a page asks for, and its text; complains of tags that are not closed."""

    def __init__(self, text: str):
        super().__init__()
        self.asked, self.ids, self.open, self.words = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.asked += [given[name] for name in ("src", "href") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def test_the_page_needs_nothing_else(out, result):
    page = Page((out / "index.html").read_text())
    assert page.open == []
    pictures = [asked for asked in page.asked if asked.startswith("data:image/svg+xml;base64,")]
    assert len(pictures) == 1
    for link in set(page.asked) - set(pictures):
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert (out / link).is_file()
    for words in (
        "LinTS below chance",
        "mixts reproduce tiny --runs 3",
        "numpyro",
        "better than chance",
    ):
        assert words in page.words


def test_again_changes_nothing(out, result, monkeypatch):
    before = contents(out)
    monkeypatch.setattr("mixts.bandit.experiments.pieces.simulate", None)  # nothing is played again
    reproduce([tiny()], out, SIZE, progress=False, options=" --runs 3")
    assert contents(out) == before


@pytest.mark.slow
def test_the_page_keeps_figures_that_were_played_before(out, result, tmp_path):
    shutil.copytree(out / "pieces", tmp_path / "pieces")
    first, second = tiny(), tiny(name="second", panels=tiny().panels[:1])
    for figure in (first, second):
        reproduce([figure], tmp_path, SIZE, progress=False, beside=[first, second])
    assert Page((tmp_path / "index.html").read_text()).ids == ["tiny", "second"]


@pytest.mark.slow
def test_files_beside_the_page_are_of_its_size(out, result, tmp_path):
    """Also those of a figure that was played at another size in between."""
    shutil.copytree(out / "pieces", tmp_path / "pieces")
    first, second = tiny(), tiny(name="second", panels=tiny().panels[:1])
    reproduce([first], tmp_path, SIZE, progress=False)
    expected = contents(tmp_path / "tiny")
    reproduce([first], tmp_path, SIZE._replace(horizon=2), progress=False)
    assert contents(tmp_path / "tiny") != expected
    reproduce([second], tmp_path, SIZE, progress=False, beside=[first, second])
    assert Page((tmp_path / "index.html").read_text()).ids == ["tiny", "second"]
    assert contents(tmp_path / "tiny") == expected


def test_what_a_killed_process_left_is_swept_up(out, result, tmp_path):
    """Files on their way to their names, but not what is young or somebody else's."""
    shutil.copytree(out, tmp_path / "out")
    expected = contents(tmp_path / "out")
    token = "0123456789abcdef"
    left = [
        "pieces/.tiny-K=3--LinTS--1.npz.",
        "pieces/.writable.",
        "tiny/.regret.png.",
        ".index.html.",
    ]
    unfinished = [tmp_path / "out" / f"{name}{token}" for name in left]
    unfinished += [tmp_path / "out/tiny/.netcdf-a1_b2/regret.nc"]
    others = [tmp_path / "out" / name for name in (".notes.html", f"notes.html.{token}")]
    young = tmp_path / "out" / f"tiny/.summary.csv.{token}"
    for path in (*unfinished, *others, young):
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
        when = time.time() + (60 if path == young else -60)
        for touched in (path, path.parent):
            os.utime(touched, (when, when))
    reproduce([tiny()], tmp_path / "out", SIZE, progress=False, options=" --runs 3")
    for path in (*others, young):
        assert path.read_text() == "half"
        path.unlink()
    assert contents(tmp_path / "out") == expected
    assert not unfinished[-1].parent.exists()


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_the_same(tmp_path):
    """kill -9 after the first piece, and while the next is on its way; then to the end."""
    cache = tmp_path / "cache"
    whole = start(tmp_path / "whole", cache)
    assert whole.wait() == 0
    expected = contents(tmp_path / "whole")
    assert len([name for name in expected if name.startswith("pieces/tiny")]) == 4
    broken = tmp_path / "broken"
    for pieces in (1, 3):
        child = start(broken, cache)
        while child.poll() is None and len(list(broken.glob("pieces/tiny*.npz"))) < pieces:
            time.sleep(0.005)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, "it was through before it was killed"
    left = {name for name in contents(broken) if name.endswith(".npz")}
    assert left
    assert all(
        expected[name] == content for name, content in contents(broken).items() if name in left
    )
    last = start(broken, cache)
    assert last.wait() == 0
    found = contents(broken)
    assert found.keys() == expected.keys()
    for name, content in found.items():
        assert content == expected[name], f"{name} differs"
