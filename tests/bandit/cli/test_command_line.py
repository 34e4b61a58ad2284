"""The `mixts` command: what it writes, and how it complains."""

import os
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest

from mixts.bandit import Simulation
from mixts.bandit.cli import compare as compare_command
from mixts.bandit.cli import demo
from mixts.bandit.cli.command_line import main
from mixts.inference import Factored
from sampling import unoptimised

PNG = b"\x89PNG\r\n\x1a\n"
TINY = ["--actions", "3", "--effects", "2", "--dim", "2", "--observations", "10"]


def complaint(arguments, capsys) -> str:
    """The one line that a command which was not understood leaves."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    return written.err


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"mixts {version('mixts')}\n"


def test_help_lists_the_commands(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "demo" in shown
    assert "compare posterior backends" in shown


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--actions", "0"], ["--actions", "got '0'", "at least 1"]),
        (["--effects", "-2"], ["--effects", "got '-2'", "at least 1"]),
        (["--dim", "1.5"], ["--dim", "got '1.5'", "a whole number"]),
        (["--observations", "many"], ["--observations", "got 'many'"]),
        (["--seed", "-1"], ["--seed", "got '-1'", "from 0 to 4294967295"]),
        (["--seed", str(2**32)], ["--seed", "from 0 to 4294967295"]),
        (["--rewards", "beta"], ["--rewards", "'beta'", "gaussian", "bernoulli", "poisson"]),
        (["--actions", "5000"], ["10,006 unknown numbers", "at most 3,000"]),
        (["--observations", str(10**12)], ["1,000,000,000,000 observations", "at most 1,000,000"]),
    ],
)
def test_bad_values(arguments, parts, capsys):
    said = complaint(["compare", *arguments], capsys)
    assert said.startswith("mixts compare: ")
    assert "(see mixts compare --help)" in said
    for part in parts:
        assert part in said, said


@pytest.mark.parametrize("arguments", [[], ["compete"], ["compare", "--speed", "3"]])
def test_unknown_words(arguments, capsys):
    assert "--help" in complaint(arguments, capsys)


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    tmp_path.joinpath("taken").write_text("")
    assert main(["compare", *TINY, "--out", str(tmp_path / "taken")]) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("mixts compare: ")
    assert "taken" in written.err


def test_demo(tmp_path, capsys, monkeypatch):
    """A table, pictures, and what was learned; in a small world, to be quick."""
    monkeypatch.setattr(demo, "VISITORS", 30)
    monkeypatch.setattr(demo, "RUNS", 2)
    with unoptimised():
        assert main(["demo", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "in 2 worlds" in shown
    assert "share genres and directors" in shown
    assert "after 30 visitors" in shown
    pictures = sorted(tmp_path.joinpath("out").iterdir())
    assert [path.name for path in pictures] == ["effects.png", "hierarchy.png", "regret.png"]
    assert all(path.read_bytes().startswith(PNG) for path in pictures)


def test_an_interrupted_demo_ends(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "simulate", lambda *_, **__: Simulation({}, 1, True))
    assert main(["demo", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "mixts demo: interrupted\n"


def test_compare(tmp_path, capsys, monkeypatch):
    """With the quickest backend only: the others take a while to compile."""
    monkeypatch.setattr(compare_command, "BACKENDS", {"Factored": Factored})
    out = tmp_path / "new" / "folder"
    assert main(["compare", *TINY, "--seed", "3", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "ClosedForm (reference)" in shown
    assert "10 rewards" in shown
    assert str(out / "comparison.csv") in shown
    assert out.joinpath("comparison.png").read_bytes().startswith(PNG)
    table = pd.read_csv(out / "comparison.csv", index_col="backend")
    assert table.index.tolist() == ["ClosedForm", "Factored"]
    assert table["reference"].tolist() == [True, False]
    assert 0.0 < table.loc["Factored", "mean_error"] < 1.0
    assert table["status"].tolist() == ["ok", "ok"]


@pytest.mark.parametrize(
    "rewards", ["gaussian", "bernoulli", "poisson", "negative-binomial", "student", "stars"]
)
def test_synthetic_problem(rewards):
    hierarchy, data = compare_command.synthetic(rewards, 5, 3, 2, 400, seed=1)
    assert [(level.name, level.size) for level in hierarchy.levels] == [
        ("effect", 3),
        ("action", 5),
    ]
    assert float(hierarchy["effect"].cov) == 3.0
    assert float(hierarchy["action"].cov) == 1.0
    assert (hierarchy.why_not_exact is None) == (rewards == "gaussian")
    assert data.contexts.shape == (400, 2)
    for numbers in (hierarchy["action"].parents["effect"], data.contexts):
        assert np.abs(numbers).max() <= 1.0
        assert numbers.min() < -0.5 < 0.5 < numbers.max()
    assert sorted(set(data.actions.tolist())) == list(range(5))
    assert (set(data.rewards.tolist()) == {0.0, 1.0}) == (rewards == "bernoulli")
    hierarchy.observations(*data)  # which refuses rewards that the family never gives
    again = compare_command.synthetic(rewards, 5, 3, 2, 400, seed=1)[1]
    np.testing.assert_array_equal(data.rewards, again.rewards)


def test_a_reader_that_leaves():
    """As in `mixts reproduce --list | head -1`: nobody is there to be told, and nothing is wrong."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "mixts.bandit.cli.command_line", "reproduce", "--list"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli", "poisson"])
def test_compare_from_a_shell(rewards, tmp_path):
    command = [
        sys.executable,
        "-m",
        "mixts.bandit.cli.command_line",
        "compare",
        "--rewards",
        rewards,
    ]
    done = subprocess.run(
        [*command, *TINY], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "out" / "comparison.csv", index_col="backend")
    first = "ClosedForm" if rewards == "gaussian" else "long NUTS"
    assert table.index.tolist() == [first, *compare_command.BACKENDS]
    assert np.isfinite(table.select_dtypes("number")).all(axis=None)
    assert tmp_path.joinpath("out", "comparison.png").read_bytes().startswith(PNG)


def test_bench_runs_what_is_asked_for(tmp_path, monkeypatch, capfd):
    """Each in a process of its own; one that misses does not keep others from being measured."""
    for name, code in (("slow", 1), ("quick", 0)):
        (tmp_path / f"bench_{name}.py").write_text(f"print('{name}!')\nraise SystemExit({code})")
    monkeypatch.setattr(compare_command, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(compare_command, "PEERS", ())
    assert main(["bench", "quick"]) == 0
    assert capfd.readouterr().out.splitlines() == ["== quick", "quick!"]
    assert main(["bench", "slow", "quick", "slow"]) == 1
    written = capfd.readouterr()
    assert written.out.splitlines() == ["== slow", "slow!", "== quick", "quick!"]
    assert written.err == "mixts bench: not as fast as it should be, or not measured: slow\n"


def test_bench_complains(monkeypatch, capsys):
    said = complaint(["bench", "agents"], capsys)
    assert "unknown benchmark 'agents'" in said
    assert "agent, catalogue, clicks, closed_form, " in said
    monkeypatch.setattr(compare_command, "PEERS", ("no_such_package",))
    assert main(["bench", "agent"]) == 1
    assert "no_such_package not installed" in capsys.readouterr().err
