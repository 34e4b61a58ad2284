"""Hierarchies in plain NumPy, from which both mixts and a reference in SciPy can be built.

Nothing here calls mixts except `Model.hierarchy`, which declares the model to it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.special
import scipy.stats
from hypothesis import strategies as st

from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Poisson, Sparse

LINKS: dict[str, tuple[Callable, Callable]] = {
    "sigmoid": (jax.nn.sigmoid, scipy.special.expit),
    "tanh": (jnp.tanh, np.tanh),
}


class Law(NamedTuple):
    """An unknown quantity: its prior in NumPyro, its log density in SciPy, and some value of it."""

    prior: Callable[[], dist.Distribution]
    log_density: Callable[[np.ndarray], float]
    value: np.ndarray


class Few(NamedTuple):
    """Weights of few parents, by index: what mixts calls `Sparse`."""

    indices: np.ndarray
    values: np.ndarray | Law


@dataclass(frozen=True)
class Group:
    """One level. `mean` and `cov` are in any of the forms that `mixts.models.Level` takes."""

    name: str
    size: int
    parents: dict[str, np.ndarray | Few | Law] = field(default_factory=dict)
    mean: Any = 0.0
    cov: Any = 1.0
    scale: Law | None = None
    link: str | None = None
    df: float | None = None  # of the Student-t family that replaces the Gaussian
    centered: bool | None = None

    @property
    def is_centered(self) -> bool:
        """What None stands for: non-centred where the scale is learned."""
        return self.scale is None if self.centered is None else self.centered

    def level(self) -> Level:
        def family(loc, tril):
            return dist.MultivariateStudentT(self.df, loc, tril)

        return Level(
            self.name,
            self.size,
            parents={parent: _declare(weights) for parent, weights in self.parents.items()},
            mean=self.mean,
            cov=1.0 if self.scale else self.cov,
            scale=self.scale.prior() if self.scale else None,
            link=LINKS[self.link][0] if self.link else None,
            family=family if self.df else None,
            centered=self.centered,
        )


@dataclass(frozen=True)
class Model:
    """A hierarchy. `reward` is "gaussian" (which has the `noise`), "bernoulli" or "poisson"."""

    groups: list[Group]
    dim: int
    reward: str = "gaussian"
    noise: float | Law = 1.0

    def hierarchy(self) -> Hierarchy:
        families = {"bernoulli": Bernoulli(), "poisson": Poisson()}
        noise = self.noise.prior() if isinstance(self.noise, Law) else self.noise
        reward = families.get(self.reward) or Gaussian(noise)
        return Hierarchy([group.level() for group in self.groups], reward, self.dim)

    def with_centered(self, centered: bool) -> "Model":
        return replace(self, groups=[replace(group, centered=centered) for group in self.groups])


def _declare(weights):
    if isinstance(weights, Law):
        return weights.prior()
    if isinstance(weights, Few):
        return Sparse(weights.indices, _declare(weights.values))
    return weights


# Laws of unknown quantities ----------------------------------------------------------------------


def half_normal(shape, rng) -> Law:
    spread = rng.uniform(0.5, 2.0, shape)
    return Law(
        lambda: dist.HalfNormal(spread),
        lambda value: scipy.stats.halfnorm.logpdf(value, scale=spread).sum(),
        rng.uniform(0.3, 2.0, shape),
    )


def gamma_event(shape, rng) -> Law:
    """The same, but one event rather than a batch: the other way to write several numbers."""
    rate = rng.uniform(0.5, 2.0, shape)
    return Law(
        lambda: dist.Gamma(2.0, rate).to_event(len(shape)),
        lambda value: scipy.stats.gamma.logpdf(value, 2.0, scale=1 / rate).sum(),
        rng.uniform(0.3, 2.0, shape),
    )


def normal(batch, shape, rng) -> Law:
    """Independent normals whose parameters have shape `batch`, broadcast to `shape`."""
    loc, spread = rng.normal(size=batch), rng.uniform(0.5, 2.0, batch)
    return Law(
        lambda: dist.Normal(loc, spread),
        lambda value: scipy.stats.norm.logpdf(value, loc, spread).sum(),
        rng.normal(size=shape),
    )


def dirichlet(batch, shape, rng) -> Law:
    """Rows that sum to one, with the same parameters for all rows or different ones."""
    alpha = rng.uniform(0.5, 3.0, (*batch, shape[-1]))
    rows = np.broadcast_to(alpha, shape)

    def log_density(value):
        return sum(scipy.stats.dirichlet.logpdf(v, a) for v, a in zip(value, rows, strict=True))

    return Law(
        lambda: dist.Dirichlet(alpha), log_density, rng.dirichlet(np.ones(shape[-1]), shape[0])
    )


# Random numbers of each form ---------------------------------------------------------------------


def covariance(form: str, size: int, dim: int, rng) -> Any:
    """A covariance of a level in the given form."""
    shape = {
        "variance": (),
        "diagonal": (dim,),
        "matrix": (dim, dim),
        "matrices": (size, dim, dim),
        "joint": (size * dim, size * dim),
    }[form]
    if len(shape) < 2:
        return rng.uniform(0.3, 2.0, shape)
    root = rng.normal(size=shape)
    return root @ np.swapaxes(root, -1, -2) / shape[-1] + 0.3 * np.eye(shape[-1])


def weights(form: str, size: int, parent_size: int, dim: int, rng) -> np.ndarray | Few | Law:
    """Weights of a level on one parent in the given form."""
    scalars = (size, parent_size)
    m = int(rng.integers(1, parent_size + 1))
    indices = np.array([rng.permutation(parent_size)[:m] for _ in range(size)])
    match form:
        case "scalars":
            return rng.normal(size=scalars) * (rng.random(scalars) < 0.8)
        case "matrices":
            return rng.normal(size=(*scalars, dim, dim))
        case "sparse":
            return Few(indices, rng.normal(size=(size, m)))
        case "normal":
            return normal([(), (parent_size,), (size, 1), scalars][rng.integers(4)], scalars, rng)
        case "normal matrices":
            return normal((*scalars, dim, dim), (*scalars, dim, dim), rng)
        case "dirichlet":
            return dirichlet([(), (size,)][rng.integers(2)], scalars, rng)
        case "sparse normal":
            return Few(indices, normal([(), (size, m)][rng.integers(2)], (size, m), rng))
        case "sparse dirichlet":
            return Few(indices, dirichlet([(), (size,)][rng.integers(2)], (size, m), rng))
    raise ValueError(form)


COVARIANCES = ["variance", "diagonal", "matrix", "matrices", "joint"]
KNOWN_WEIGHTS = ["scalars", "matrices", "sparse"]
LEARNED_WEIGHTS = ["normal", "normal matrices", "dirichlet", "sparse normal", "sparse dirichlet"]


def scale_shapes(size: int, dim: int) -> list[tuple[int, ...]]:
    return [(), (dim,), (size, 1), (size, dim)]


# Strategies --------------------------------------------------------------------------------------

# Not in alphabetical order from top to bottom, so that an order of names is not one of levels.
NAMES = ["zone", "brand", "maker", "item"]


@st.composite
def models(draw: st.DrawFn, linear_gaussian: bool = False) -> Model:
    """Hierarchies of one to four levels, with any crossed or skipped parents and any forms.

    `linear_gaussian` leaves out what has no closed form.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="numbers"))
    # Few different shapes: JAX compiles each operation anew for each.
    depth, dim = draw(st.integers(1, 4), label="levels"), draw(st.integers(1, 2), label="dim")
    sizes = [draw(st.sampled_from([1, 3]), label="size") for _ in range(depth)]
    parents = draw(arrows(depth), label="arrows")
    learned = not linear_gaussian
    groups = []
    for child, size in enumerate(sizes):
        forms = [form for form in COVARIANCES if form != "joint" or not parents[child]]
        form = draw(st.sampled_from(forms + ["learned"] * 2 * learned), label="spread")
        scale = None
        if form == "learned":
            shape = draw(st.sampled_from(scale_shapes(size, dim)), label="scale")
            scale = draw(st.sampled_from([half_normal, gamma_event]))(shape, rng)
        kinds = st.sampled_from(KNOWN_WEIGHTS + LEARNED_WEIGHTS * learned)
        mean = draw(st.sampled_from([(), (dim,), (size, dim)]), label="mean")
        group = Group(
            NAMES[child],
            size,
            parents={
                NAMES[parent]: weights(draw(kinds), size, sizes[parent], dim, rng)
                for parent in parents[child]
            },
            mean=rng.normal(size=mean),
            cov=1.0 if scale else covariance(form, size, dim, rng),
            scale=scale,
            centered=draw(st.sampled_from([True, False, None]), label="centered"),
        )
        if learned:
            links = st.sampled_from([None, *LINKS]) if parents[child] else st.none()
            family = st.sampled_from([None, None, 5.0])
            group = replace(group, link=draw(links, label="link"), df=draw(family, label="df"))
        groups.append(group)
    if linear_gaussian:
        return Model(groups, dim, noise=rng.uniform(0.3, 2.0))
    reward = draw(st.sampled_from(["gaussian", "learned", "bernoulli", "poisson"]), label="reward")
    if reward == "learned":
        return Model(groups, dim, noise=half_normal((), rng))
    return Model(groups, dim, reward=reward, noise=rng.uniform(0.3, 2.0))


@st.composite
def arrows(draw: st.DrawFn, depth: int) -> list[list[int]]:
    """The parents of each level: any of those above it, in any order; no level is childless."""
    parents = [draw(st.sets(st.sampled_from(range(i)))) if i else set() for i in range(depth)]
    for level in range(depth - 1):
        if not any(level in above for above in parents):
            parents[draw(st.integers(level + 1, depth - 1))].add(level)
    return [draw(st.permutations(sorted(above))) for above in parents]


class Rows(NamedTuple):
    """Observations, in the order in which a program takes them."""

    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray


def rows(model: Model, n: int, rng) -> Rows:
    """`n` observations with rewards that the model's reward family could give."""
    rewards = {
        "gaussian": rng.normal(size=n),
        "bernoulli": rng.integers(0, 2, n),
        "poisson": rng.poisson(1.0, n),
    }[model.reward]
    actions = rng.integers(0, model.groups[-1].size, n)
    return Rows(rng.normal(size=(n, model.dim)), actions, rewards.astype(float))
