"""Posteriors side by side: how far each backend is from a reference, and what it costs."""

import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ...models import Data, Hierarchy
from ...models.arrays import as_count
from ...models.messages import listed, short
from ..backend import Backend, Posterior
from ..gaussian.closed_form import ClosedForm
from ..observation import as_context
from ..programs.by_hand import Program
from ..programs.nuts import Nuts
from ..progress import Task, task
from ..status import Status, Trouble, TroubleWarning, warn_of_trouble
from .discrepancy import Summary, distances, errors, summarise

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Comparison", "compare"]

# Two lines of headings, with the column of the table between them.
_HEADINGS = (
    *(("mean error", "mean_error", "rms"), ("mean error", "mean_error_max", "max")),
    *(("sd ratio", "sd_ratio", "mean"), ("sd ratio", "sd_ratio_min", "min")),
    *(("sd ratio", "sd_ratio_max", "max"), ("draws", "wasserstein", "W1")),
    *(("draws", "coverage", "coverage"), ("draws", "best_tv", "best TV")),
    *(("seconds", "seconds", "run"), ("seconds", "compile_seconds", "compile")),
)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Backends against a reference, on the same data.

    The reference's own row compares a second, independent run and set of draws of it with the first:
    it says how large the columns are by chance alone, for a backend that is right.

    Attributes:
        table: a row per backend, the reference first (`reference` is True). Over all numbers of all
            levels: `mean_error` and `mean_error_max`, root mean square and largest distance of means, in
            standard deviations of the reference; `sd_ratio`, `sd_ratio_min`, `sd_ratio_max`, geometric
            mean and extremes of the standard deviations over the reference's; `wasserstein`, average
            Wasserstein-1 distance of the draws, in standard deviations of the reference; `coverage`,
            average share of the reference's draws inside the backend's central 90% intervals. Then
            `best_tv`, total variation distance of the probabilities of being best; `seconds` of
            `condition` and `posterior` once compiled; `compile_seconds`, by how much the first run, with
            `init`, was slower (next to nothing if a backend of this form has run before); and
            `status`, "ok" or the troubles of either run in words.
        by_level: the columns from `mean_error` to `coverage` by backend and level.
        best: (actions, backends) probability of each action to be best in `context`.
        posteriors: backend's name -> its posterior.
        intervals: backend's name -> level -> (2, size, d), the ends of central 90% intervals.
        hierarchy: the hierarchy of all posteriors.
        context: the context of `best`, (d,) or (K, d).
        draws: the number of draws of each posterior.
        keys: backend's name -> the key of its draws.

    Example:
        >>> from mixts.inference import ClosedForm, compare
        >>> from mixts.models import Data, linear
        >>> data = Data([[1.0], [1.0]], [0, 1], [3.0, 0.0])
        >>> found = compare(linear([[1.0], [1.0]], dim=1), data, {"again": ClosedForm}, draws=10)
        >>> list(found.table.index), found.table.loc["again", "status"]
        (['exact', 'again'], 'ok')
    """

    table: "pd.DataFrame"
    by_level: "pd.DataFrame"
    best: "pd.DataFrame"
    posteriors: dict[str, Posterior]
    intervals: dict[str, dict[str, Any]]
    hierarchy: Hierarchy | Program
    context: Array
    draws: int
    keys: dict[str, Array]

    @property
    def reference(self) -> str:
        """The reference's name."""
        return next(iter(self.posteriors))

    @property
    def reference_label(self) -> str:
        """The reference's name, marked as such."""
        return self.reference if self.reference == "reference" else f"{self.reference} (reference)"

    def plot(self) -> "Figure":
        """Intervals of a few vectors, and the probabilities of being best: see `plot_comparison`."""
        from ..plots.comparison import plot_comparison

        return plot_comparison(self)

    def to_arviz(self) -> Any:
        """The draws as one ArviZ object: a group per backend, a variable per level.

        A group has the backend's name, in small letters and with underscores: "SVI, mean field" is
        `svi_mean_field`.
        """
        from ..arviz_view import groups_to_arviz

        pairs = [(posterior, self.keys[name]) for name, posterior in self.posteriors.items()]
        groups = dict(zip(_group_names(self.posteriors), pairs, strict=True))
        named = self.hierarchy if isinstance(self.hierarchy, Hierarchy) else None
        return groups_to_arviz(groups, self.draws, named)

    def __repr__(self) -> str:
        """The table under two lines of headings, and below it what went wrong."""
        import pandas as pd

        table, status = self.table, self.table["status"]
        shown = table[[column for _, column, _ in _HEADINGS]].assign(
            status=status.where(status == "ok", "see below")
        )
        shown.columns = pd.MultiIndex.from_tuples(
            [*((a, b) for a, _, b in _HEADINGS), ("", "status")]
        )
        shown.index = pd.Index([self.reference_label, *table.index[1:]])
        seconds: Any = {("seconds", "run"): _two_digits, ("seconds", "compile"): _two_digits}
        text = shown.to_string(float_format="{:.3f}".format, formatters=seconds)
        each = zip(table.index, status, strict=True)
        return "\n".join([text, *(f"{name}: {words}" for name, words in each if words != "ok")])


def compare(
    hierarchy: Hierarchy | Program,
    data: Data,
    backends: Mapping[str, Any],
    reference: Any = "exact",
    *,
    context: Any = None,
    draws: int = 2000,
    key: Array | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Condition every backend on the same data and measure how far it is from a reference.

    Warns, with a `TroubleWarning`, of backends whose status is not ok, the reference among them.

    Example:
        >>> from mixts.inference import Factored, compare
        >>> from mixts.models import Data, linear
        >>> data = Data([[1.0], [1.0]], [0, 1], [3.0, 0.0])
        >>> found = compare(linear([[1.0], [1.0]], dim=1), data, {"Factored": Factored}, draws=10)
        >>> bool(found.table.loc["Factored", "mean_error"] < 1e-3)  # exact with one effect
        True

    Args:
        hierarchy: the hierarchy or the program whose posterior is wanted.
        data: the observations.
        backends: name -> function from the hierarchy to a backend, as every backend's constructor is,
            or a backend already built: `{"Laplace": Laplace, "NUTS": lambda h: Nuts(h, chains=4)}`.
        reference: the name of one of the backends, a function like them, or "exact": `ClosedForm`
            where it applies, and elsewhere NUTS with 4 chains of 1000 transitions of warm-up and 2000
            kept ones, under the name "long NUTS".
        context: where actions are compared: (d,), or (K, d) with a row for each action. By default the
            mean of the contexts in the data.
        draws: the number of draws of each posterior. Distances of draws have a Monte Carlo error
            of the order `1 / sqrt(draws)`, which the reference's own row shows.
        key: source of all randomness; `jax.random.key(0)` by default.
        progress: whether to show a progress bar; by default, if it takes longer than two seconds.
    """
    import pandas as pd

    sources, chosen = _check(hierarchy, data, backends, reference)
    draws = as_count(draws, "compare draws")
    where = _context(hierarchy, data, context)
    key = jax.random.key(0) if key is None else key
    built = {name: _build(name, source, hierarchy) for name, source in sources.items()}

    with task("compare", 3 * len(built), "steps", progress) as bar, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", TroubleWarning
        )  # of one posterior; below they are all named
        measured = {}
        for position, (name, backend) in enumerate(built.items()):
            own = jax.random.fold_in(key, position)
            measured[name] = _measure(name, backend, hierarchy, data, where, draws, own, bar)
    rows, level_rows = {}, {}
    standard = measured[chosen].found
    for name, (_, _, found, again, times, status) in measured.items():
        found = again if name == chosen else found
        parts = {level.name: distances(level.name, found, standard) for level in hierarchy.levels}
        level_rows |= {(name, level): errors([part]) for level, part in parts.items()}
        rows[name] = {
            "reference": name == chosen,
            **errors(list(parts.values())),
            "best_tv": 0.5 * np.abs(found.best - standard.best).sum(),
            **times,
            "status": str(status),
        }
    warn_of_trouble("compare", {name: row["status"] for name, row in rows.items()})
    actions = hierarchy.actions
    labels = pd.Index(actions.coordinates, tupleize_cols=False, name=actions.name)
    return Comparison(
        table=pd.DataFrame(list(rows.values()), pd.Index(rows, name="backend")),
        by_level=pd.DataFrame(
            list(level_rows.values()),
            pd.MultiIndex.from_tuples(level_rows, names=["backend", "level"]),
        ),
        best=pd.DataFrame({k: each.found.best for k, each in measured.items()}, labels).rename_axis(
            columns="backend"
        ),
        posteriors={name: each.posterior for name, each in measured.items()},
        intervals={name: each.found.intervals for name, each in measured.items()},
        hierarchy=hierarchy,
        context=where,
        draws=draws,
        keys={name: each.key for name, each in measured.items()},
    )


class _Measured(NamedTuple):
    """Two runs of a backend: the first one's posterior and the key of its draws, and both summarised."""

    posterior: Posterior
    key: Array
    found: Summary
    again: Summary
    times: dict[str, float]
    status: Status


def _measure(
    name: str,
    backend: Backend[Any],
    hierarchy: Hierarchy | Program,
    data: Data,
    context: Array,
    draws: int,
    key: Array,
    bar: Task,
) -> _Measured:
    """Run a backend twice, the second time without compiling."""
    key_run, key_rerun, key_draws, key_redraw = jax.random.split(key, 4)
    bar.say(f"compare: {name}, first run")
    posterior, *first = _timed(backend, key_run, data)
    _check_levels(name, posterior, hierarchy)
    bar.advance()
    bar.say(f"compare: {name}, second run")
    rerun, *second = _timed(backend, key_rerun, data)
    bar.advance()
    bar.say(f"compare: {name}, draws")
    found = summarise(posterior, hierarchy, context, key_draws, draws)
    again = summarise(rerun, hierarchy, context, key_redraw, draws)
    bar.advance()
    compiling = max(sum(first) - sum(second), 0.0)
    times = {"seconds": second[1], "compile_seconds": compiling}
    status = _status([posterior, rerun], [found, again])
    return _Measured(posterior, key_draws, found, again, times, status)


def _status(posteriors: Sequence[Posterior], summaries: Sequence[Summary]) -> Status:
    """The first status that is not ok, of the posteriors and of their draws."""
    for posterior in posteriors:
        if not posterior.status.ok:
            return posterior.status
    drawn = [draws for summary in summaries for draws in summary.draws.values()]
    return Status({Trouble.NOT_FINITE: sum(np.sum(~np.isfinite(draws)) for draws in drawn)})


def _check(hierarchy: Any, data: Any, backends: Any, reference: Any) -> tuple[dict[str, Any], str]:
    """Every backend by its name, the reference first, and the reference's name."""
    if not isinstance(hierarchy, Hierarchy | Program):
        raise TypeError(f"compare: got {short(hierarchy)}; expected a Hierarchy or a Program")
    if not isinstance(data, Data):
        raise TypeError(
            f"compare: data is a {type(data).__name__}; expected Data(contexts, actions, rewards)"
        )
    hierarchy.observations(*data)
    example = "{'Laplace': Laplace, 'NUTS': lambda h: Nuts(h, chains=4)}"
    if not isinstance(backends, Mapping):
        raise TypeError(
            f"compare: backends is {short(backends)}; expected a dict from a name to a function from the "
            f"hierarchy to a backend, such as {example}"
        )
    if not backends:
        raise ValueError(f"compare: backends is empty; expected at least one, such as {example}")
    for name, source in backends.items():
        if not isinstance(name, str) or not name.strip():
            raise TypeError(f"compare: a backend has the name {short(name)}; expected a text")
        _check_source(f"backend '{name}'", source)
    if isinstance(reference, str):
        if reference in backends:
            return {reference: backends[reference], **backends}, reference
        if reference != "exact":
            known = listed(backends)
            raise ValueError(
                f"compare: reference is {short(reference)}; expected 'exact', one of the backends' names "
                f"({known}), or a function from the hierarchy to a backend"
            )
        exact = isinstance(hierarchy, Hierarchy) and hierarchy.why_not_exact is None
        name = "exact" if exact else "long NUTS"
        source = ClosedForm if exact else _long_nuts(len(data))
    else:
        _check_source("reference", reference)
        name, source = "reference", reference
    if name in backends:
        raise ValueError(
            f"compare: the reference is called '{name}', and so is one of the backends: rename the "
            f"backend, or make it the reference by reference='{name}'"
        )
    return {name: source, **backends}, name


def _check_source(what: str, source: Any) -> None:
    if not isinstance(source, Backend) and not callable(source):
        raise TypeError(
            f"compare: {what} is {short(source)}; expected a function from the hierarchy to a backend, "
            "such as Laplace or lambda h: Nuts(h, chains=4), or a backend already built"
        )


def _long_nuts(observations: int) -> Callable[[Hierarchy | Program], Nuts]:
    room = max(observations, 1)
    return lambda h: Nuts(h, chains=4, warmup=1000, samples=2000, capacity=room)


def _context(hierarchy: Hierarchy | Program, data: Data, context: Any) -> Array:
    if context is not None:
        return as_context(hierarchy, context)
    if not len(data):
        raise ValueError(
            "compare: data hold no observations, so there is no mean context to find the best action "
            "in; give context=<(d,), or (K, d) with a row for each action>"
        )
    return data.contexts.mean(0)


def _build(name: str, source: Any, hierarchy: Hierarchy | Program) -> Backend[Any]:
    if isinstance(source, Backend):
        return source
    try:
        backend = source(hierarchy)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"compare: backend '{name}' does not take this hierarchy: {error}"
        ) from error
    if not isinstance(backend, Backend):
        raise TypeError(
            f"compare: backend '{name}': its function returned a {type(backend).__name__}; expected a "
            "backend, such as Laplace(hierarchy)"
        )
    return backend


def _timed(backend: Backend[Any], key: Array, data: Data) -> tuple[Posterior, float, float]:
    """The posterior, the seconds of `init`, and those of `condition` and `posterior`."""
    start = time.perf_counter()
    state = jax.block_until_ready(backend.init(key))
    ready = time.perf_counter()
    posterior = backend.posterior(backend.condition(state, *data))
    jax.block_until_ready((posterior.mean, posterior.cov, posterior.state))
    return posterior, ready - start, time.perf_counter() - ready


def _check_levels(name: str, posterior: Posterior, hierarchy: Hierarchy | Program) -> None:
    for level, expected in hierarchy.shapes.items():
        mean = posterior.mean.get(level)
        if mean is None or mean.shape != expected:
            found = "no mean" if mean is None else f"a mean of shape {mean.shape}"
            raise ValueError(
                f"compare: the posterior of backend '{name}' has {found} for level '{level}'; "
                f"expected {expected}: build it from the hierarchy that is compared"
            )


def _group_names(names: Iterable[str]) -> list[str]:
    """A different identifier for each name."""
    groups: list[str] = []
    for name in names:
        group = re.sub(r"\W+", "_", name.lower()).strip("_")
        if not group.isidentifier():
            group = f"backend_{group}".rstrip("_")
        while group in groups:
            group += "_again"
        groups.append(group)
    return groups


def _two_digits(seconds: float) -> str:
    digits = 1 - int(np.floor(np.log10(seconds))) if 0 < seconds < np.inf else 0
    return f"{seconds:.{max(digits, 0)}f}"
