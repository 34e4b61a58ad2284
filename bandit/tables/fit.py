"""`fit`: from a catalogue and a log to a posterior that predicts, draws, and makes an agent."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from ...inference import (
    Backend,
    EmpiricalBayes,
    LeaveOneOut,
    Posterior,
    Status,
    best_backend,
    empirical_bayes,
    leave_one_out,
)
from ...inference.progress import task
from ...inference.random import fused_key
from ...models import Catalogue, Data, Gaussian, Hierarchy
from ...models.catalogue.table import as_table
from ...models.messages import short
from ..agent.agent import Agent
from ..agent.views import action_moments, expected_rewards
from ..policies.policy import ThompsonSampling
from .frames import effects_frame, unknowns_frame

__all__ = ["Fit", "compare_fits", "fit"]

_DRAWS = 1000  # of the learned numbers, where they are shown


class Fit(NamedTuple):
    """A catalogue conditioned on a log.

    Attributes:
        catalogue: the catalogue, with its encoding of contexts.
        data: the observations of the log.
        backend: what conditioned on them.
        state: its state after them.
        why: why this backend was chosen.
        log_evidence: where numbers were maximised, the largest log evidence.
        fit_status: where numbers were maximised, how that ended.

    Example:
        >>> import pandas as pd
        >>> shoes = pd.DataFrame({"shoe": ["boot", "clog"], "kind": ["warm", "light"]})
        >>> log = pd.DataFrame({"shoe": ["boot", "boot", "clog"], "worn": [3.0, 4.0, 1.0]})
        >>> catalogue = Catalogue(shoes, "shoe", crossed="kind", covs=1.0, reward=Gaussian(0.5))
        >>> found = fit(catalogue, log, reward="worn")
        >>> found.predict(log)["mean"].round(1).tolist()
        [3.4, 3.4, 1.1]
    """

    catalogue: Catalogue
    data: Data
    backend: Backend[Any]
    state: Any
    why: str
    log_evidence: float | None = None
    fit_status: Status | None = None

    @property
    def hierarchy(self) -> Any:
        """What was declared; with the numbers that were found, where they were maximised."""
        return self.backend.problem

    def posterior(self) -> Posterior:
        """What is known of every level."""
        return self.backend.posterior(self.state)

    def status(self) -> Status:
        """What went wrong: when numbers were maximised, and in the posterior."""
        own = {} if self.fit_status is None else self.fit_status.counts
        return Status(own | self.backend.status(self.state).counts)

    def predict(self, rows: Any) -> pd.DataFrame:
        """Mean and standard deviation of the reward that is expected of the item in each row.

        Args:
            rows: a table with the items' labels and what contexts are made of, like the log.
        """
        table = as_table(rows, "rows")
        actions, contexts = self.catalogue.positions(table), self.catalogue.contexts(table)
        mean, cov = action_moments(self.posterior())
        family = self._family()
        expected, sd = expected_rewards(family, contexts, mean[actions], cov[actions])
        index = getattr(rows, "index", None)
        return pd.DataFrame(
            {"mean": expected, "sd": sd}, index=index if isinstance(index, pd.Index) else None
        )

    def items(self, visitor: Any = None) -> pd.DataFrame:
        """All items for one visitor: expected reward, its standard deviation, number of rewards.

        Args:
            visitor: a row as a dict or a table; by default the average context of the log.
        """
        x = np.asarray(self.data.contexts).mean(0)
        if visitor is not None:
            contexts = self.catalogue.contexts(visitor)
            if len(contexts) != 1:
                raise ValueError(f"items: got {len(contexts)} visitors; expected one")
            x = contexts[0]
        expected, sd = expected_rewards(self._family(), x, *action_moments(self.posterior()))
        counts = np.bincount(np.asarray(self.data.actions), minlength=len(expected))
        index = pd.Index(list(self.catalogue.labels), tupleize_cols=False, name="item")
        return pd.DataFrame({"mean": expected, "sd": sd, "rewards": counts}, index=index)

    def effects(self) -> pd.DataFrame:
        """Mean and standard deviation of each number of each vector above the items."""
        return effects_frame(self.posterior(), self.hierarchy)

    def numbers(self, key: Array | None = None) -> pd.DataFrame:
        """Median and a 90% interval of scales, noise and other numbers that are learned."""
        return unknowns_frame(self._unknowns(key))

    def draw(self, n: int = 1000, key: Array | None = None) -> dict[str, Array]:
        """`n` joint draws of all vectors, by level."""
        key = jax.random.key(0) if key is None else key
        return self.backend.sample_many(key, self.state, n)

    def agent(self, seed: Any = 0, **options: Any) -> Agent:
        """A Thompson sampler that starts from this posterior and speaks of rows and labels.

        Args:
            seed: decides every draw.
            options: as in `Agent`.
        """
        policy = ThompsonSampling(self.backend)
        return Agent(policy, seed, catalogue=self.catalogue, posterior=self.state, **options)

    def plot(self, **options: Any) -> Any:
        """The effects as a forest; see `plot_forest`."""
        return self.posterior().plot(**options)

    def leave_one_out(self) -> LeaveOneOut:
        """Each reward of the log predicted from all others, exactly; see `leave_one_out`."""
        return leave_one_out(self.hierarchy, self.data)

    def to_arviz(self, n: int = 1000, key: Array | None = None) -> Any:
        """Draws with `posterior_predictive`, `log_likelihood` and `observed_data`, as ArviZ has them.

        For `arviz.loo`, `arviz.compare`, `arviz.plot_ppc` and others.
        """
        from ...inference.arviz_view import checks_to_arviz

        key = jax.random.key(0) if key is None else key
        return checks_to_arviz(self.posterior(), self.data, key, n)

    def _unknowns(self, key: Array | None) -> dict[str, np.ndarray]:
        if not self.hierarchy.unknowns.laws:
            return {}
        key = jax.random.key(0) if key is None else key
        draws = self.backend.sample_unknowns(key, self.state, _DRAWS)
        return {name: np.asarray(draws[name]) for name in self.hierarchy.unknowns.laws}

    def _family(self) -> Any:
        """The family of rewards, with learned numbers at their mean."""
        family = self.hierarchy.reward
        if not family.is_learned or isinstance(family, Gaussian):
            return family
        draws = self.backend.sample_unknowns(jax.random.key(0), self.state, _DRAWS)
        return family.given({name: jnp.mean(draws[name], 0) for name in family.unknowns})

    def __repr__(self) -> str:
        backend = type(self.backend).__name__
        lines = [f"Fit of {self.catalogue!r} to {len(self.data):,} rewards, by {backend}"]
        if self.log_evidence is not None:
            lines.append(f"log evidence {self.log_evidence:.4f}")
        lines.append(f"status: {self.status()}")
        return "\n".join(lines)


def fit(
    catalogue: Catalogue,
    log: Any,
    reward: str,
    *,
    exposure: str | None = None,
    action: str | None = None,
    numbers: str = "posterior",
    backend: Any = None,
    seed: Any = 0,
    progress: bool | None = None,
) -> Fit:
    """Condition a catalogue on a log.

    Where the encoding of contexts is not learned yet, it is learned from the log. Where no family of
    rewards is declared, they are Gaussian, and the standard deviation of the log's rewards is the unit of
    what is learned; the mean of "common" is then their mean.

    Args:
        catalogue: the items.
        log: a table with a row for each observation; see `Catalogue.data`.
        reward: the column of rewards.
        exposure: the column of exposures; see `Data`.
        action: the column of the items' labels, by default called as in the table of items.
        numbers: "posterior" learns scales and noise by their posterior; "maximum" takes those for which
            the log evidence is largest (`empirical_bayes`), as mixed-model packages do. With a wide
            "common" that is REML; with `covs={"common": 0.0}`, whose mean is then learned too, it is
            maximum likelihood.
        backend: what makes a backend of a hierarchy, such as `Nuts`; by default the best.
        seed: of backends that draw.
        progress: whether to say on stderr what is being done; by default if it takes over two seconds.

    Example:
        >>> import pandas as pd
        >>> shoes = pd.DataFrame({"shoe": ["boot", "clog", "mule"]})
        >>> log = pd.DataFrame({"shoe": ["boot", "clog", "mule"] * 2, "worn": [3.0, 1.0, 2.0, 4, 1, 2]})
        >>> found = fit(Catalogue(shoes, "shoe"), log, reward="worn", numbers="maximum")
        >>> found.agent().act({}).action
        'boot'
    """
    if not isinstance(catalogue, Catalogue):
        raise TypeError(f"fit: got {short(catalogue)}; expected a Catalogue")
    if numbers not in ("posterior", "maximum"):
        raise ValueError(f"fit numbers: got {short(numbers)}; expected 'posterior' or 'maximum'")
    table = as_table(log, "log")
    if not len(table):
        raise ValueError(
            "fit: the log has no rows; an agent may start from the prior: Agent(policy)"
        )
    if catalogue.encoding is None:
        catalogue = catalogue.learned_from(table)
    with task("fit: reading the log", shown=progress) as now:
        data = catalogue.data(table, reward, exposure=exposure, action=action)
        catalogue = _in_units_of(catalogue, data)
        best = None
        if numbers == "maximum":
            now.say("fit: maximising the evidence")
            best = _maximised(catalogue.hierarchy, data)
        hierarchy = catalogue.hierarchy if best is None else best.hierarchy
        if backend is None:
            choice = best_backend(hierarchy)
            own, why = choice.backend, choice.why
        else:
            own, why = backend(hierarchy), "asked for"
        now.say(f"fit: {type(own).__name__} on {len(data):,} rewards")
        state = own.condition(own.init(fused_key(seed)), *data)
        jax.block_until_ready(state)
    if best is None:
        return Fit(catalogue, data, own, state, why)
    return Fit(catalogue, data, own, state, why, float(best.log_evidence), best.status)


def _in_units_of(catalogue: Catalogue, data: Data) -> Catalogue:
    """With the mean and the spread of the rewards as those of the priors, where none were declared."""
    if catalogue.reward_given is not None:
        return catalogue
    rewards = np.asarray(data.rewards, float)
    spread = float(rewards.std()) or max(abs(float(rewards.mean())), 1.0)
    laws = dict(catalogue.laws)
    own = laws.get("common", {})
    if catalogue.parts.common and "mean" not in own:
        components = catalogue.hierarchy.components or ()
        is_constant = np.array([name == "Intercept" for name in components], float)
        laws["common"] = {"mean": float(rewards.mean()) * is_constant} | own
    return catalogue.changed(laws=laws, unit=catalogue.unit or spread)


def compare_fits(fits: Mapping[str, Fit]) -> pd.DataFrame:
    """Fits of the same log, the best first, by how well they predict each reward from all others.

    Its columns are `elpd`, the sum of the log densities of exact leave-one-out predictions, `se`, its
    standard error, `difference` from the best, and `se_difference`, that of the differences row by row.

    Args:
        fits: by name, linear and Gaussian with known numbers: of numbers="maximum", or given ones.

    Example:
        >>> import pandas as pd
        >>> shoes = pd.DataFrame({"shoe": ["boot", "clog"], "kind": ["warm", "light"]})
        >>> log = pd.DataFrame({"shoe": ["boot", "clog"] * 3, "worn": [3.0, 1.0, 3.5, 1.2, 2.9, 0.7]})
        >>> known = {"covs": 1.0, "reward": Gaussian(0.5)}
        >>> one = fit(Catalogue(shoes, "shoe", **known), log, reward="worn")
        >>> two = fit(Catalogue(shoes, "shoe", crossed="kind", **known), log, reward="worn")
        >>> list(compare_fits({"alone": one, "kinds": two}).columns)
        ['elpd', 'se', 'difference', 'se_difference']
    """
    if not isinstance(fits, Mapping) or len(fits) < 2:
        raise TypeError(
            f"compare_fits: got {short(fits)}; expected a dict of two fits or more, by name"
        )
    first = next(iter(fits.values()))
    for name, each in fits.items():
        if not np.array_equal(each.data.rewards, first.data.rewards):
            raise ValueError(
                f"compare_fits: {short(name)} was fitted to other rewards; expected fits of the same log"
            )
    found = {name: each.leave_one_out() for name, each in fits.items()}
    order = sorted(found, key=lambda name: -found[name].elpd)
    best = found[order[0]].log_density
    rows = {}
    for name in order:
        apart = found[name].log_density - best
        spread = np.sqrt(len(apart)) * apart.std(ddof=1) if len(apart) > 1 else float("nan")
        rows[name] = (found[name].elpd, found[name].se, float(apart.sum()), float(spread))
    columns = ["elpd", "se", "difference", "se_difference"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def _maximised(hierarchy: Hierarchy, data: Data) -> EmpiricalBayes:
    """The hierarchy with the numbers it learns where the evidence is largest."""
    learned = [
        level for level in hierarchy.levels if level.unknowns(_sizes(hierarchy), hierarchy.dim)
    ]
    parts = [f"{level.name}.cov" for level in learned]
    parts += ["noise"] if hierarchy.reward.is_learned else []
    if "common" in hierarchy and not np.any(np.asarray(hierarchy["common"].cov)):
        parts.append("common.mean")
    if not parts:
        raise ValueError(
            'fit: there is nothing to maximise: every number is given; leave out numbers="maximum"'
        )
    start = {name: law.sample(jax.random.key(0)) for name, law in hierarchy.unknowns.laws.items()}
    return empirical_bayes(hierarchy.unknowns.given(start), data, learn=tuple(parts))


def _sizes(hierarchy: Hierarchy) -> dict[str, int]:
    return {level.name: level.size for level in hierarchy.levels}
