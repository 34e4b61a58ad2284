"""New nodes above the actions: they know what their parents imply, and nobody else notices."""

import jax
import numpy as np
import pytest

from mistakes import as_a_user
from mixts.bandit import Agent, AgentError, NewNodes, Position, ThompsonSampling, UniformRandom
from mixts.inference import ClosedForm, Factored, Laplace
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Sparse
from sampling import unoptimised
from tolerance import tolerance

D = 2
# The parent of each node: two brands above the departments, which have any weights on them; the last
# of each level is new.
CATEGORIES, PRODUCTS = [0, 1, 1, 0], [0, 1, 2, 0, 3, 1]
DEPARTMENTS = np.array([[1.0, 0.5], [-0.5, 1.0], [0.3, 0.3]])


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def arrows(parents: list[int], size: int, *, dense: bool):
    return np.eye(size)[parents] if dense else Sparse(np.array(parents)[:, None], num_parents=size)


def shop(departments=2, categories=3, products=4, *, dense=False, labels=True, reward=None):
    """The first so many of each level: brands are kept jointly, all else in blocks."""

    def named(letter: str, n: int) -> list[str] | None:
        return [f"{letter}{i}" for i in range(n)] if labels else None

    return Hierarchy(
        [
            Level("brand", 2, cov=np.eye(2 * D) + 0.3),
            Level(
                "department",
                departments,
                parents={"brand": DEPARTMENTS[:departments]},
                labels=named("d", departments),
            ),
            Level(
                "category",
                categories,
                parents={"department": arrows(CATEGORIES[:categories], departments, dense=dense)},
                mean=0.5,
                cov=np.diag([0.5, 2.0]),
                labels=named("c", categories),
            ),
            Level(
                "product",
                products,
                parents={"category": arrows(PRODUCTS[:products], categories, dense=dense)},
                cov=0.7,
                labels=named("p", products),
            ),
        ],
        reward or Gaussian(0.5),
        D,
    )


def observations(n: int, actions: int, seed: int = 1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), rng.integers(0, actions, n), rng.normal(size=n)


def assert_same_posterior(agent: Agent, backend, state, **allowed) -> None:
    found, expected = agent.posterior(), backend.posterior(state)
    for level in expected.mean:
        np.testing.assert_allclose(found.mean[level], expected.mean[level], **allowed)
        np.testing.assert_allclose(found.cov[level], expected.cov[level], **allowed)


@pytest.mark.parametrize("dense", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_category_and_a_product_in_one_call(x64, dense):
    """Before and after rewards of the newcomers: the posterior of a hierarchy that always had them."""
    agent = Agent(ThompsonSampling(ClosedForm(shop(dense=dense))))
    before, after = observations(30, 4), observations(30, 6, seed=2)
    agent.update(before[0], Position(before[1]), before[2])
    new = {"category": NewNodes(["d0"], labels=["c3"])}
    assert agent.add_actions(["c3", "c1"], labels=["p4", "p5"], nodes=new) == ["p4", "p5"]
    backend = ClosedForm(shop(2, 4, 6, dense=dense))
    state = backend.condition(backend.init(), *before)
    assert_same_posterior(agent, backend, state, rtol=0, atol=1e-9)
    agent.update(after[0], Position(after[1]), after[2])
    state = backend.condition(state, *after)
    assert_same_posterior(agent, backend, state, rtol=0, atol=1e-9)


def everything(agent: Agent) -> list[np.ndarray]:
    state = agent.state()
    return [np.asarray(leaf) for leaf in jax.tree.leaves((state.policy, state.posterior))]


def known(agent: Agent) -> list[np.ndarray]:
    """All that is shown: of real vectors, not of spare ones."""
    shown = agent.policy, agent.posterior().state
    return [np.asarray(leaf) for leaf in jax.tree.leaves(shown)]


def assert_unchanged(before: list[np.ndarray], after: list[np.ndarray]) -> None:
    """What there was is there bit for bit, in arrays that may be larger."""
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new[tuple(slice(0, size) for size in old.shape)], old)


def test_several_levels_at_once_and_one_by_one(x64):
    """All levels of a new branch in one call, or each in its own: nobody else notices either way."""
    seen, later = observations(30, 4), observations(30, 6, seed=2)
    agents = [Agent(ThompsonSampling(ClosedForm(shop(labels=False)))) for _ in range(2)]
    once, steps = agents
    for agent in agents:
        agent.update(*seen)
    before = known(once)
    nodes = {"category": [2], "department": DEPARTMENTS[2:]}
    assert once.add_actions([3, 1], nodes=nodes) == [4, 5]
    assert_unchanged(before, known(once))
    assert steps.add_actions(nodes={"department": NewNodes({"brand": DEPARTMENTS[2:]})}) == []
    steps.add_actions(nodes={"category": NewNodes(Sparse([[2]]))})
    steps.add_actions([3], nodes=None)
    before = known(steps)
    steps.add_actions(Position([1]))  # there is room for it
    assert_unchanged(before, known(steps))
    whole = shop(3, 4, 6, labels=False)
    moved = arrows([0, 1, 1, 2], 3, dense=False)
    levels = [
        *whole.levels[:2],
        whole["category"].remade(parents={"department": moved}),
        whole["product"],
    ]
    backend = ClosedForm(whole.remade(levels=levels))
    state = backend.condition(backend.init(), *seen)
    for agent in agents:
        assert_same_posterior(agent, backend, state, rtol=0, atol=1e-9)
        agent.update(*later)
    state = backend.condition(state, *later)
    for agent in agents:
        assert_same_posterior(agent, backend, state, rtol=0, atol=1e-9)


def test_a_covariance_of_its_own(x64):
    """The first node that has one makes those of the others be written out."""
    agent = Agent(ThompsonSampling(ClosedForm(shop(labels=False))))
    seen = observations(20, 4)
    agent.update(*seen)
    new = NewNodes([0], mean=[1.0, 2.0], cov=3.0)
    agent.add_actions([3, 1], nodes={"category": new})
    whole = shop(2, 4, 6, labels=False)
    cov = np.stack([*[np.diag([0.5, 2.0])] * 3, 3.0 * np.eye(D)])
    mean = np.array([*[[0.5, 0.5]] * 3, [1.0, 2.0]])
    levels = [
        level.remade(mean=mean, cov=cov) if level.name == "category" else level
        for level in whole.levels
    ]
    backend = ClosedForm(whole.remade(levels=levels))
    state = backend.condition(backend.init(), *seen)
    assert_same_posterior(agent, backend, state, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_clicks(x64):
    """One after the other, as the bigger hierarchy would have learned them."""
    x, _, _ = observations(24, 4)
    clicks = np.random.default_rng(7).integers(0, 2, 24)
    actions = np.concatenate([np.arange(12) % 4, np.arange(12) % 6])
    agent = Agent(ThompsonSampling(Laplace(shop(labels=False, reward=Bernoulli()), capacity=32)))
    backend = Laplace(shop(2, 4, 6, labels=False, reward=Bernoulli()), capacity=32)
    state = backend.init()
    for i, row in enumerate(zip(x, actions, clicks, strict=True)):
        if i == 12:
            agent.add_actions([3, 1], nodes={"category": [0]})
        agent.update(row[0], int(row[1]), float(row[2]))
        state = backend.update(state, *row)
    assert_same_posterior(agent, backend, state, **tolerance())


def test_spare_nodes_are_not_seen():
    """Neither in the policy nor in the posterior, nor by products; a state brings all back."""
    agent = Agent(ThompsonSampling(ClosedForm(shop())))
    agent.add_actions(["c3"], labels=["p4"], nodes={"category": NewNodes(["d0"], ["c3"])})
    again = Agent.restore(agent.state())
    for each in (agent, again):
        each.add_actions(["c4"], labels=["p5"], nodes={"category": NewNodes(["d1"], ["c4"])})
        problem, found = each.policy.problem, each.posterior()
        assert problem["category"].labels == ("c0", "c1", "c2", "c3", "c4")
        assert problem["category"].parents["department"].indices.ravel().tolist() == [0, 1, 1, 0, 1]
        assert problem["product"].parents["category"].indices.ravel().tolist() == [0, 1, 2, 0, 3, 4]
        assert problem["department"].labels == ("d0", "d1")
        assert found.mean["category"].shape == (5, D)
        assert each.state().policy.problem["category"].size == 6  # there is room for one more
    np.testing.assert_array_equal(
        agent.posterior().mean["product"], again.posterior().mean["product"]
    )
    assert agent.act(np.ones(D)) == again.act(np.ones(D))
    drawn = found.to_arviz(jax.random.key(0), n=2)["posterior"]
    assert drawn["category_id"].values.tolist() == list(problem["category"].labels)
    assert drawn["department_id"].values.tolist() == ["d0", "d1"]


def test_kept_in_a_folder_and_in_a_file(tmp_path):
    """Opened again, from the journal and from a snapshot, and loaded: the same to the last bit."""
    policy = ThompsonSampling(ClosedForm(shop()))
    with Agent.open(tmp_path / "agent", policy, seed=3) as agent:
        agent.update(np.ones(D), "p0", 2.0)
        agent.reserve(nodes={"department": 1})
        new = {"department": NewNodes([[0.3, 0.3]], ["d2"]), "category": NewNodes(["d2"], ["c3"])}
        agent.add_actions(["c3"], labels=["p4"], nodes=new)
        agent.update(np.ones(D), "p4", 1.0)
        journal = everything(agent)
        nodes = agent.state().nodes
    with Agent.open(tmp_path / "agent", policy, seed=3) as agent:
        jax.tree.map(np.testing.assert_array_equal, everything(agent), journal)
        assert agent.state().nodes == nodes
        agent.snapshot()
        agent.save(tmp_path / "file")
    with Agent.open(tmp_path / "agent") as agent:
        for each in (agent, Agent.load(tmp_path / "file")):
            jax.tree.map(np.testing.assert_array_equal, everything(each), journal)
            assert each.state().nodes == nodes
            each.add_actions(["c4"], labels=["p5"], nodes={"category": NewNodes(["d2"], ["c4"])})
            assert each.policy.problem["category"].labels[-1] == "c4"


def test_an_agent_can_be_moved_to_a_hierarchy_that_has_the_nodes():
    agent = Agent(ThompsonSampling(ClosedForm(shop())))
    agent.update(np.ones(D), "p0", 2.0)
    agent.add_actions(["c3"], labels=["p4"], nodes={"category": NewNodes(["d0"], ["c3"])})
    agent.migrate(ThompsonSampling(ClosedForm(shop(3, 4, 5))))
    assert agent.posterior().mean["department"].shape == (3, D)
    agent.add_actions(["c4"], labels=["p5"], nodes={"category": NewNodes(["d2"], ["c4"])})
    assert agent.labels[-1] == "p5"


def test_a_product_of_two_categories_comes_by_another_hierarchy(x64):
    """It ties them together, so it cannot join a tree; the agent is moved, and knows all that it knew."""

    def movies(rows: list[list[float]]) -> Hierarchy:
        names = [f"m{i}" for i in range(len(rows))]
        movie = Level("movie", len(rows), parents={"genre": rows}, cov=0.2, labels=names)
        return Hierarchy([Level("genre", 2), movie], Gaussian(0.5), 1)

    few, all_of_them = [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    agent = Agent(ThompsonSampling(ClosedForm(movies(few))))
    for label, reward in (("m0", 2.0), ("m1", -1.0)):
        agent.update([1.0], label, reward)
    with as_a_user(), pytest.raises(AgentError, match=r"tie their parents .* branching=False"):
        agent.add_actions(all_of_them[2:], labels=["m2"])
    backend = ClosedForm(movies(all_of_them))
    agent.migrate(ThompsonSampling(backend))
    agent.update([1.0], "m2", 3.0)
    state = backend.condition(backend.init(), np.ones((3, 1)), [0, 1, 2], [2.0, -1.0, 3.0])
    assert_same_posterior(agent, backend, state, rtol=0, atol=1e-9)
    agent.add_actions([[0.2, 0.8]], labels=["m3"])
    assert agent.labels[-1] == "m3"


def new_category(parents=("d0",), labels=("c3",), **more) -> dict:
    return {"category": NewNodes(list(parents), list(labels), **more)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nodes": {"kind": ["d0"]}}, "no level 'kind' for new nodes; the levels above .* 'brand'"),
        ({"nodes": {"product": ["c0"]}}, "that is the level of the actions"),
        ({"nodes": {"brand": NewNodes()}}, "'brand' cannot take in new nodes .*Agent.migrate"),
        ({"nodes": ["c3"]}, r"nodes is \['c3'\]; expected a dict from a level's name"),
        ({"nodes": {}}, "nodes is {}; expected a dict"),
        (
            {"nodes": new_category(["d7"])},
            "level 'department' has no node 'd7'; its labels are 'd0'",
        ),
        ({"nodes": new_category([0])}, "level 'department' has no node 0"),
        ({"nodes": {"category": NewNodes("d0", ["c3"])}}, r"expected a list .* such as \['d0'\]"),
        (
            {"nodes": {"category": NewNodes(Position([2]), ["c3"])}},
            "has no node 2; it has 2, from 0",
        ),
        ({"nodes": {"category": NewNodes(labels=["c3"])}}, "expected a dict with weights for each"),
        ({"nodes": new_category(labels=["c1"])}, "level 'category': label 'c1' is taken"),
        ({"nodes": new_category(["d0", "d0"], ["x", "x"])}, "label 'x' is taken"),
        ({"nodes": {"category": NewNodes(["d0"])}}, "level 'category': labels are None"),
        ({"nodes": new_category(["d0", "d1"])}, "of 1 and 2 new nodes"),
        ({"nodes": new_category(cov=-1.0)}, "every variance must be positive"),
        (
            {"nodes": {"category": NewNodes(Sparse([[0, 1]], [[0.5, 0.5]]), ["c3"])}},
            "node of level 'category' so far has one parent at most, .* Agent.migrate",
        ),
        ({"weights": ["c3"], "labels": ["p4"]}, "level 'category' has no node 'c3'"),
        (
            {"weights": Sparse([[3]]), "labels": ["p4"]},
            "holds 3; every entry must be from 0 to 2",
        ),
        ({"weights": ["c4"], "labels": ["p4"], "nodes": new_category()}, "has no node 'c4'"),
        ({"weights": ["c3"], "labels": ["p0"], "nodes": new_category()}, "label 'p0' is taken"),
    ],
)
def test_what_does_not_fit(roomy, given, message):
    """Refused before anything changes; spare places are nobody's."""
    before = everything(roomy)
    with as_a_user(), pytest.raises(AgentError, match=message):
        roomy.add_actions(**given)
    jax.tree.map(np.testing.assert_array_equal, everything(roomy), before)
    assert roomy.state().nodes["category"].size == 3


@pytest.fixture(scope="module")
def roomy() -> Agent:
    agent = Agent(ThompsonSampling(ClosedForm(shop())))
    agent.reserve(nodes={"category": 1})
    return agent


def test_numbers_where_there_are_no_labels():
    agent = Agent(UniformRandom(shop(labels=False)))
    for parents, message in (([3], "has no node 3; it has 3"), (["c0"], "expected whole numbers")):
        with as_a_user(), pytest.raises(AgentError, match=message):
            agent.add_actions(parents)
    with as_a_user(), pytest.raises(AgentError, match="has no labels, and got"):
        agent.add_actions(nodes={"category": NewNodes([0], labels=["c3"])})
    assert agent.add_actions([3], nodes={"category": [1]}) == [4]


def test_backends_that_keep_levels_otherwise():
    two = Hierarchy(
        [Level("genre", 2), Level("movie", 3, parents={"genre": np.full((3, 2), 0.5)})],
        Gaussian(),
        D,
    )
    for backend in (ClosedForm(two), Factored(two)):
        with as_a_user(), pytest.raises(AgentError, match="'genre' cannot take in new nodes while"):
            Agent(ThompsonSampling(backend)).add_actions([2], nodes={"genre": NewNodes()})
    with as_a_user(), pytest.raises(AgentError, match="reserve: level 'genre' cannot take in"):
        Agent(ThompsonSampling(ClosedForm(two))).reserve(nodes={"genre": 1})
