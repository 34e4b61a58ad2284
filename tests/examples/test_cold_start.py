"""The example of new movies, in small: it draws its picture, and sharing effects pays."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from sampling import unoptimised
from scripts import script


@pytest.mark.slow
def test_newcomers_cost_less_with_effects(tmp_path: Path, capsys):
    example = script("examples/cold_start.py")
    with unoptimised():
        regrets = example.main(["--out", str(tmp_path), "--runs", "2", "--rounds", "260"])
    fresh = {name: regret[:, example.EVERY :].mean(1) for name, regret in regrets.items()}
    assert (fresh["meTS"] < fresh["LinTS"]).all()
    assert all(regret.shape == (2, 260) and (regret >= 0).all() for regret in regrets.values())
    said = capsys.readouterr().out
    assert "meTS: regret" in said
    picture = imread(tmp_path / "cold_start.png")
    assert np.ptp(picture) > 0.5, "something is drawn"
