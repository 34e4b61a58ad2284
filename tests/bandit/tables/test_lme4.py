"""lme4's published answers, from tables alone: `fit` with numbers="maximum"."""

import numpy as np
import pandas as pd
import pytest

from mixed_models import known_fits
from mixts.bandit import Fit, fit
from mixts.inference import Trouble
from mixts.models import Catalogue, LKJCovariance

# Diameters of zones of inhibition, a row for each of 24 plates, of 6 samples (Davies and Goldsmith 1972).
_PENICILLIN = """
27 23 26 23 23 21
27 23 26 23 23 21
25 21 25 24 24 20
26 23 25 23 23 20
25 22 26 22 23 20
24 22 25 23 22 19
24 20 23 21 22 19
26 22 26 24 24 21
24 21 24 22 22 20
24 21 24 23 22 19
26 23 26 24 24 21
25 22 26 24 24 20
26 24 26 24 25 22
26 23 26 23 23 20
26 23 25 24 24 22
25 22 25 23 23 20
25 21 24 23 23 20
25 22 24 23 23 19
24 21 23 21 21 19
26 23 26 24 24 21
25 21 24 22 22 18
25 22 25 22 22 20
24 21 24 22 24 19
24 21 24 22 21 18
"""


def table(name: str) -> pd.DataFrame:
    """A data set of `mixed_models`, whose actions are numbered."""
    contexts, actions, rewards = (np.asarray(part, float) for part in known_fits()[name].data)
    days = {"days": contexts[:, 1]} if contexts.shape[1] > 1 else {}
    return pd.DataFrame({"unit": actions.astype(int), "y": rewards, **days})


def maximum(log: pd.DataFrame, common: float = 0.0, **options) -> Fit:
    covs = {"common": common} | options.pop("covs", {})
    items = log.drop_duplicates("unit")
    return fit(Catalogue(items, "unit", covs=covs, **options), log, reward="y", numbers="maximum")


def variances(found: Fit, *levels: str) -> list[float]:
    noise = float(found.hierarchy.reward.noise) ** 2
    return [*(float(found.hierarchy[level].cov) for level in levels), noise]


def test_dyestuff():
    """Yield ~ 1 + (1 | Batch)."""
    found = maximum(table("dyestuff"))
    assert -2 * found.log_evidence == pytest.approx(327.3271, abs=1e-4)
    assert variances(found, "unit") == pytest.approx([1388.3333, 2451.2500], rel=1e-4)
    effects = found.effects().set_index("level")
    assert effects.loc["common", "mean"] == pytest.approx(1527.5, rel=1e-6)
    assert found.status().ok


def test_a_wide_prior_on_what_is_common_gives_reml():
    found = maximum(table("dyestuff"), common=1e9)
    assert variances(found, "unit") == pytest.approx([1764.05, 2451.25], rel=1e-4)


def test_a_variance_of_exactly_zero_is_told():
    """Dyestuff2."""
    found = maximum(table("dyestuff2"))
    assert -2 * found.log_evidence == pytest.approx(162.8730, abs=1e-4)
    assert variances(found, "unit") == pytest.approx([0.0, 13.34610], rel=1e-4, abs=1e-4)
    assert Trouble.AT_ZERO in found.status()


@pytest.mark.slow
def test_sleepstudy():
    """Reaction ~ 1 + Days + (1 + Days | Subject)."""
    log = table("sleepstudy")
    cov = {"unit": LKJCovariance(2)}
    found = maximum(log, contexts="1 + days", covs=cov)
    assert -2 * found.log_evidence == pytest.approx(1751.9393, abs=1e-4)
    cov = np.asarray(found.hierarchy["unit"].cov, float)
    np.testing.assert_allclose(np.diag(cov), [565.516, 32.682], rtol=2e-4)
    assert cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]) == pytest.approx(0.0813, abs=2e-4)
    assert variances(found)[0] == pytest.approx(654.941, rel=1e-4)
    fixed = found.effects()["mean"].to_numpy()
    np.testing.assert_allclose(fixed, [251.4051, 10.4673], rtol=1e-5)
    own = np.asarray(found.posterior().mean["unit"])[0] - fixed
    np.testing.assert_allclose(own, [2.8158, 9.0755], rtol=2e-4)


@pytest.mark.slow
def test_pastes():
    """strength ~ 1 + (1 | batch / cask)."""
    log = table("pastes")
    log["batch"] = [f"batch {unit // 3}" for unit in log["unit"]]
    found = maximum(log, nested="batch")
    assert -2 * found.log_evidence == pytest.approx(247.9945, abs=1e-4)
    expected = [1.1991791, 8.4336168, 0.6780021]
    assert variances(found, "batch", "unit") == pytest.approx(expected, rel=2e-4)


@pytest.mark.slow
def test_penicillin():
    """Diameter ~ 1 + (1 | plate) + (1 | sample): crossed, and a cell has no noise of its own."""
    rows = np.array([row.split() for row in _PENICILLIN.strip().splitlines()], float)
    plates, samples = np.indices(rows.shape).reshape(2, -1)
    columns = {"plate": plates, "sample": samples, "y": rows.ravel()}
    log = pd.DataFrame({"unit": range(rows.size), **columns})
    found = maximum(log, crossed=["plate", "sample"], covs={"unit": 0.0})
    assert -2 * found.log_evidence == pytest.approx(332.1883, abs=1e-4)
    expected = [0.714979, 3.135185, 0.302425]
    assert variances(found, "plate", "sample") == pytest.approx(expected, rel=2e-4)
    means = found.effects().query("level == 'common'")["mean"]
    assert means.item() == pytest.approx(22.9722, rel=1e-5)
