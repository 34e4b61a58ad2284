"""`mixts fit`: two CSV files in, tables and a picture out."""

import numpy as np
import pandas as pd
import pytest

from mixts.bandit.cli.command_line import main
from sampling import unoptimised


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    items = pd.DataFrame({"movie": [f"movie {i}" for i in range(6)], "kind": ["a|b", "a", "b"] * 2})
    items.to_csv("items.csv", index=False)
    seen = rng.integers(0, 6, 200)
    rewards = 3.0 + (seen % 3 == 1) + rng.normal(size=200)
    log = pd.DataFrame({"movie": items["movie"].to_numpy()[seen], "stars": rewards})
    log.to_csv("log.csv", index=False)
    return tmp_path


COMMAND = ["fit", "items.csv", "log.csv", "--action", "movie", "--crossed", "kind"]


def test_it_prints_and_draws_what_was_learned(files, capsys):
    with unoptimised():
        assert main([*COMMAND, "--reward", "stars", "--numbers", "maximum", "--out", "fitted"]) == 0
    printed = capsys.readouterr().out
    assert "Fit of Catalogue(6 of level 'movie' below kind (2)) to 200 rewards" in printed
    effects = pd.read_csv(files / "fitted" / "effects.csv")
    assert list(effects["label"]) == ["all", "a", "b"]
    assert effects["mean"][1] > effects["mean"][2]
    items = pd.read_csv(files / "fitted" / "items.csv")
    assert items["rewards"].sum() == 200
    assert (files / "fitted" / "effects.png").read_bytes().startswith(b"\x89PNG")


def test_a_wrong_column_is_one_line(files, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*COMMAND, "--reward", "clicks"])
    assert ended.value.code == 2
    assert "log: there is no column 'clicks'" in capsys.readouterr().err


def test_a_file_that_is_not_there(files, capsys):
    assert main(["fit", "no.csv", "log.csv", "--action", "movie", "--reward", "stars"]) == 1
    assert "no.csv" in capsys.readouterr().err
