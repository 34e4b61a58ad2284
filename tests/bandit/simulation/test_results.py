"""Results: their statistics against NumPy, as tables and arrays, and on disk."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from mixts.bandit import Played, Simulation
from mixts.inference import Status

ODD_NAMES = (
    "meTS",
    "",
    "a/b\\c",
    "naïve 😀",
    "regret_0",
    "'\"\n\t",
    "about",
    "x" * 300,
    "_private",
)


def part(runs: int, horizon: int = 6, seed: int = 0, **troubles) -> Played:
    rng = np.random.default_rng(seed)
    regret = rng.exponential(size=(runs, horizon)).astype(np.float32)
    actions = rng.integers(0, 9, (runs, horizon)).astype(np.int32)
    counts = {name: np.full(runs, n) for name, n in troubles.items()}
    return Played(regret, actions, Status(counts))


@pytest.fixture
def simulation() -> Simulation:
    return Simulation({"A": part(5, rejected=2), "B": part(5, seed=1, divergences=1)}, 6)


def assert_equal(a: Simulation, b: Simulation) -> None:
    assert list(a.played) == list(b.played)
    assert (a.horizon, a.interrupted) == (b.horizon, b.interrupted)
    for name, one in a.played.items():
        other = b.played[name]
        for field in ("regret", "actions", "numbers"):
            left, right = getattr(one, field), getattr(other, field)
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
        assert list(one.status.counts) == list(other.status.counts)
        for trouble, count in one.status.counts.items():
            np.testing.assert_array_equal(count, other.status.counts[trouble])


def test_statistics_are_those_of_regret_so_far(simulation):
    for name, found in simulation.regret.items():
        so_far = np.cumsum(found.astype(float), axis=1)
        error = np.sqrt(((so_far - so_far.mean(0)) ** 2).sum(0) / 4 / 5)
        np.testing.assert_allclose(simulation.mean()[name], so_far.mean(0), rtol=1e-12)
        np.testing.assert_allclose(simulation.standard_error()[name], error, rtol=1e-12)


def test_long_sums_do_not_lose_digits():
    """Regrets are float32; a million of them are not added in float32."""
    regret = np.full((2, 1_000_000), 0.1, np.float32)
    total = Simulation({"A": Played(regret, np.zeros(regret.shape, np.int32), Status())}, 1_000_000)
    exact = 1e6 * float(np.float32(0.1))
    np.testing.assert_allclose(total.summary()["mean"], exact, rtol=1e-9)
    np.testing.assert_allclose(total.mean()["A"][-1], exact, rtol=1e-9)


def test_summary_has_a_row_for_each_policy(simulation):
    table = simulation.summary()
    assert list(table.index) == ["A", "B"]
    assert table.index.name == "policy"
    assert list(table.columns) == ["mean", "se", "runs", "rejected", "divergences"]
    for name in table.index:
        total = simulation.regret[name].astype(float).sum(1)
        assert table.loc[name, "mean"] == pytest.approx(total.mean())
        assert table.loc[name, "se"] == pytest.approx(total.std(ddof=1) / np.sqrt(5))
        assert table.loc[name, "runs"] == 5
    assert table.loc["A", "rejected"] == 10
    assert table.loc["B", "divergences"] == 5
    assert table.isna().loc["A", "divergences"]
    assert table.isna().loc["B", "rejected"]


def test_one_run_has_no_standard_error():
    alone = Simulation({"A": part(1)}, 6)
    assert np.isnan(alone.summary().loc["A", "se"])
    assert np.all(np.isnan(alone.standard_error()["A"]))
    np.testing.assert_allclose(alone.mean()["A"], np.cumsum(alone.regret["A"][0]), rtol=1e-6)


def test_a_policy_without_runs():
    stopped = Simulation({"A": part(2), "B": part(0)}, 6, interrupted=True)
    assert list(stopped.mean()) == ["A"]
    assert list(stopped.standard_error()) == ["A"]
    assert np.isnan(stopped.summary().loc["B", "mean"])
    assert stopped.summary().loc["B", "runs"] == 0
    assert "interrupted" in repr(stopped)
    assert "6 rounds" in repr(stopped)


def test_arrays_have_names_and_places():
    """Runs keep their numbers: those that are missing are NaN, and -1."""
    late = part(2, seed=1)._replace(runs=np.array([1, 4]))
    data = Simulation({"A": part(3), "late": late, "none": part(0)}, 6).to_xarray()
    assert dict(data.sizes) == {"policy": 3, "run": 5, "round": 6}
    assert data.regret.dims == data.action.dims == ("policy", "run", "round")
    assert list(data.coords["policy"].values) == ["A", "late", "none"]
    np.testing.assert_array_equal(data.coords["run"], np.arange(5))
    np.testing.assert_array_equal(data.coords["round"], np.arange(1, 7))
    np.testing.assert_array_equal(data.regret.sel(policy="A")[:3], part(3).regret)
    np.testing.assert_array_equal(data.regret.sel(policy="late", run=[1, 4]), late.regret)
    np.testing.assert_array_equal(data.action.sel(policy="late", run=[1, 4]), late.actions)
    assert np.all(np.isnan(data.regret.sel(policy="late", run=[0, 2, 3])))
    assert np.all(data.action.sel(policy="none") == -1)
    assert np.issubdtype(data.action.dtype, np.integer)


def test_what_is_saved_is_loaded(simulation, tmp_path):
    path = tmp_path / "results of a day.npz"
    simulation.save(path)
    assert_equal(Simulation.load(path), simulation)
    simulation.save(str(path))  # over the old one
    assert_equal(Simulation.load(str(path)), simulation)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_names_may_be_anything(tmp_path):
    parts = {name: part(2, seed=i, rejected=i) for i, name in enumerate(ODD_NAMES)}
    parts["late"] = part(1)._replace(runs=np.array([7]))
    odd = Simulation(parts, 6, interrupted=True)
    odd.save(tmp_path / "odd")
    assert_equal(Simulation.load(tmp_path / "odd"), odd)


def test_a_file_is_readable_as_the_user_has_it(simulation, tmp_path):
    (tmp_path / "plain").touch()
    simulation.save(tmp_path / "saved")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "saved")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_save_leaves_the_old_file(failing, simulation, tmp_path, monkeypatch):
    path = tmp_path / "results.npz"
    simulation.save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os if failing == "fsync" else Path, failing, full)
    with pytest.raises(OSError, match="no space"):
        Simulation({"other": part(3)}, 6).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _truncated(path: Path, whole: bytes) -> None:
    path.write_bytes(whole[: len(whole) // 2])


def _flipped(path: Path, whole: bytes) -> None:
    middle = len(whole) // 3
    path.write_bytes(
        whole[:middle] + bytes(255 - byte for byte in whole[middle:][:40]) + whole[middle + 40 :]
    )


def _of_another_version(path: Path, whole: bytes) -> None:
    np.savez(path, about=np.asarray('{"format": 99}'))


WRONG = {
    "half a file": _truncated,
    "spoilt bytes": _flipped,
    "another version": _of_another_version,
    "an empty file": lambda path, whole: path.write_bytes(b""),
    "words": lambda path, whole: path.write_text("policy,regret\nA,3\n"),
    "another archive": lambda path, whole: np.savez(path, regret=np.ones(3)),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_file_is_refused(name, simulation, tmp_path):
    path = tmp_path / "results.npz"
    simulation.save(path)
    WRONG[name](path, path.read_bytes())
    with pytest.raises(ValueError, match=r"results\.npz is not a simulation written by"):
        Simulation.load(path)


def test_one_array_is_refused(tmp_path):
    np.save(tmp_path / "array.npy", np.ones(3))
    with pytest.raises(ValueError, match=r"array\.npy is not a simulation"):
        Simulation.load(tmp_path / "array.npy")


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        Simulation.load(tmp_path / "nothing.npz")


def test_a_missing_folder_is_missing(simulation, tmp_path):
    with pytest.raises(FileNotFoundError):
        simulation.save(tmp_path / "no folder" / "results.npz")


def test_trouble_is_said_below_the_table(simulation):
    lines = repr(simulation).splitlines()
    assert lines[-2].startswith("A: 10 observations were ignored")
    assert lines[-2].endswith("(in 5 of 5 runs)")
    assert lines[-1] == "B: divergences: 5 (in 5 of 5 runs)"
    assert "runs)" not in repr(Simulation({"A": part(5, rejected=0)}, 6))
