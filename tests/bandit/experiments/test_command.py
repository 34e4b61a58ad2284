"""`mixts reproduce`: what it prints, what it leaves, and how it complains."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mixts.bandit import UniformRandom
from mixts.bandit.cli.command_line import main
from mixts.bandit.experiments import all_figures, command
from tiny_figures import contents, panel, tiny


@pytest.fixture
def only_tiny(monkeypatch):
    """A figure of one piece as the only one there is."""
    one = panel(3, policies={"chance": UniformRandom}, claims=())
    monkeypatch.setattr(command, "all_figures", lambda ratings: {"tiny": tiny(panels=(one,))})


def complaint(arguments, capsys) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


def failure(arguments, capsys) -> str:
    """The one line of a command that could not be carried out."""
    assert main(["reproduce", *arguments]) == 1
    *bar, said = capsys.readouterr().err.splitlines()
    assert said.startswith("mixts reproduce: ")
    steps = "compiling: ", "playing: ", "drawing"
    assert all(line.startswith(steps) for line in bar if line)
    return said


def test_the_list(capsys):
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(all_figures())


def test_a_figure(tmp_path, capsys, only_tiny):
    sizes = ["--runs", "3", "--horizon", "40", "--seed", "1"]
    assert main(["reproduce", "tiny", *sizes, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for part in ("pieces: 1, each 3 runs x 40 rounds", "Tiny problems", "chance", "index.html"):
        assert part in said
    assert "orderings" not in said
    assert (
        "mixts reproduce tiny --runs 3 --horizon 40 --seed 1"
        in (tmp_path / "index.html").read_text()
    )
    assert (tmp_path / "tiny" / "regret.png").is_file()


def test_a_single_run_has_no_standard_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "all_figures", lambda ratings: {"tiny": tiny(panels=(panel(3),))})
    sizes = ["--runs", "1", "--horizon", "1"]
    assert main(["reproduce", "tiny", *sizes, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "too close to tell: LinTS below chance" in said
    assert "nan" not in said


def test_quick_is_small_and_can_be_changed(tmp_path, capsys, only_tiny, monkeypatch):
    seen = []
    monkeypatch.setattr(
        command, "reproduce", lambda figures, out, size, **_: seen.append(size) or []
    )
    assert main(["reproduce", "all", "--quick", "--out", str(tmp_path)]) == 0
    assert main(["reproduce", "all", "--quick", "--runs", "7", "--out", str(tmp_path)]) == 0
    assert main(["reproduce", "all", "--out", str(tmp_path)]) == 0
    assert seen == [(4, 300, 0), (7, 300, 0), (50, 5000, 0)]


def test_unknown_figures(capsys):
    assert "unknown figure 'sinthetic'; did you mean 'synthetic'?" in complaint(
        ["sinthetic"], capsys
    )
    assert "unknown figure 'typo'" in complaint(["all", "typo"], capsys)
    assert "did you mean 'all'?" in complaint(["al"], capsys)
    assert "no figure given" in complaint([], capsys)
    assert "at least 1" in complaint(["synthetic", "--runs", "0"], capsys)
    assert "at most 2147483647" in complaint(["synthetic", "--horizon", "9999999999"], capsys)


def test_a_folder_that_cannot_be_written(tmp_path, capsys, only_tiny):
    taken = tmp_path / "taken"
    taken.write_text("")
    assert "taken" in failure(["tiny", "--quick", "--out", str(taken)], capsys)


def test_a_full_disk(tmp_path, capsys, only_tiny, monkeypatch):
    """What is there stays whole."""

    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("mixts.bandit.simulation.results.replace_file", full)
    arguments = ["tiny", "--runs", "2", "--horizon", "3", "--out", str(tmp_path)]
    assert "No space left on device" in failure(arguments, capsys)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (None, ["no such file", "expected ratings.dat"]),
        (
            "userId,movieId,rating,timestamp\n1,2,nine,4\n",
            ["line 2", "download the data set again"],
        ),
        (
            "userId,movieId,rating,timestamp\n1,2,3.0,4\n",
            ["rates 1 movies by 1 users", "expected 100 movies and 5 users at least"],
        ),
    ],
)
def test_ratings_that_cannot_be_read(content, parts, tmp_path, capsys):
    ratings, out = tmp_path / "ratings.csv", tmp_path / "out"
    if content is not None:
        ratings.write_text(content)
    said = failure(["movielens", "--ratings", str(ratings), "--out", str(out)], capsys)
    for part in parts:
        assert part in said
    assert not out.exists()


def test_ratings_that_say_nothing(tmp_path, capsys):
    """Everybody gives everything three stars: no movie differs from another."""
    lines = [f"{user},{movie},3.0,4\n" for user in range(5) for movie in range(100)]
    ratings, out = tmp_path / "ratings.csv", tmp_path / "out"
    ratings.write_text("userId,movieId,rating,timestamp\n" + "".join(lines))
    given = ["--quick", "--ratings", str(ratings), "--out", str(out)]
    said = failure(["movielens", *given], capsys)
    assert f"'{ratings}' gives no problem for 'movielens " in said
    assert "no variance to learn" in said
    assert contents(out) == {}


def test_a_scheduler_that_is_not_there(tmp_path, capsys, only_tiny, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("mixts.bandit.experiments.cluster.ANSWER_SECONDS", 1)
    arguments = ["tiny", "--quick", "--scheduler", "tcp://127.0.0.1:9", "--out", str(tmp_path)]
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:9'" in failure(arguments, capsys)
    assert contents(tmp_path) == {}


# Where the tests themselves run in the background, interrupts are ignored, and that is passed on.
HEEDS_INTERRUPTS = """
import signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)
from mixts.bandit.cli.command_line import main

sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c(tmp_path):
    """An interrupted command says so, leaves whole pieces only, and no traceback."""
    arguments = ["bound", "--runs", "2", "--horizon", "100000000", "--out", str(tmp_path)]
    child = subprocess.Popen(
        [sys.executable, "-c", HEEDS_INTERRUPTS, "reproduce", *arguments],
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "Figures: 1" in child.stdout.readline()
        time.sleep(3)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=120)
    finally:
        child.kill()
    assert child.returncode == 130
    assert said.splitlines()[-1] == "mixts reproduce: interrupted"
    assert "Traceback" not in said
    assert contents(tmp_path) == {}
