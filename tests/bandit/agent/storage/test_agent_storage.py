"""An agent that was saved and loaded is the same agent, and a file that was spoilt is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents import POLICIES, assert_same_agent, live, policy
from mixts.bandit import Agent, LinTS, ThompsonSampling
from mixts.bandit.agent.storage.declaration import decode, encode
from mixts.bandit.agent.storage.file import AgentFileError, from_bytes, to_bytes
from mixts.bandit.agent.storage.snapshot import from_file, to_file
from mixts.inference import ClosedForm, Laplace, Nuts, Svi
from mixts.models import Hierarchy, linear, nonlinear

LABELS = ["a", "naïve", "c d", "", "e", "😀"]


def check_goes_on(agent: Agent, path, many: bool) -> None:
    live(agent, 12, 1, many)
    agent.save(path)
    loaded = Agent.load(path)
    assert_same_agent(loaded, agent)
    assert loaded.labels == LABELS
    assert live(loaded, 12, 2, many) == live(agent, 12, 2, many)
    assert_same_agent(loaded, agent)
    found, expected = loaded.act(np.ones(2)), agent.act(np.ones(2))
    assert found == expected
    assert (found.probability is not None) == many


def test_a_loaded_agent_goes_on_as_the_saved_one(tmp_path, precision):
    check_goes_on(Agent(policy(), 3, labels=LABELS, keep=20), tmp_path / "agent", many=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_any_loaded_agent_goes_on_as_the_saved_one(name, tmp_path, precision):
    agent = Agent(POLICIES[name](), 3, labels=LABELS, keep=50, propensity_draws=5)
    check_goes_on(agent, tmp_path / "agent", many=True)


def test_saving_does_not_disturb(tmp_path):
    agent, other = Agent(policy(), 3), Agent(policy(), 3)
    for seed in range(3):
        agent.save(tmp_path / "agent")
        assert live(agent, 4, seed) == live(other, 4, seed)
    assert_same_agent(agent, other)


def test_actions_that_came_and_went(tmp_path):
    agent = Agent(policy(), 3, labels=LABELS)
    live(agent, 5, seed=1)
    agent.add_actions([[0.5, 0.5], [1.0, 0.0], [0.2, 0.1]], labels=["x", "y", "z"])
    agent.remove_actions(["c d", "y"])
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent", policy=policy())
    assert_same_agent(loaded, agent)
    assert loaded.labels == ["a", "naïve", "", "e", "😀", "x", "z"]
    contexts = np.random.default_rng(2).normal(size=(20, 2))
    assert loaded.act_many(contexts).actions == agent.act_many(contexts).actions
    assert loaded.add_actions([[0.1, 0.9]], labels=["new"]) == ["new"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: ThompsonSampling(Nuts(small(), warmup=20, steps=1, capacity=2)),
        lambda: ThompsonSampling(Svi(small(), steps=2, fit_steps=20, capacity=2)),
    ],
    ids=["nuts", "svi"],
)
def test_backends_that_carry_keys_and_chains(make, tmp_path):
    agent = Agent(make(), 3)
    for _ in range(3):  # past the first capacity
        agent.reward(agent.act(np.ones(2)).id, 1.0)
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent")
    assert_same_agent(loaded, agent)
    for other in (loaded, agent):
        other.reward(other.act(np.ones(2)).id, 1.0)
    assert_same_agent(loaded, agent)


def small() -> Hierarchy:
    return linear(np.ones((3, 1)), 2)


def own_link(u):
    return jnp.arctan(u)


@pytest.mark.slow
def test_a_link_of_ones_own_must_be_handed_in(tmp_path):
    def make(link=own_link):
        return ThompsonSampling(Laplace(nonlinear(np.ones((3, 1)), 2, link=link)))

    agent = Agent(make(), 3)
    agent.reward(agent.act(np.ones(2)).id, 1.0)
    agent.save(tmp_path / "agent")
    with pytest.raises(AgentFileError, match=r"cannot hold: .*own_link.*policy="):
        Agent.load(tmp_path / "agent")
    with pytest.raises(AgentFileError, match="another policy or hierarchy"):
        Agent.load(tmp_path / "agent", make(jax.nn.sigmoid))
    loaded = Agent.load(tmp_path / "agent", make())
    assert_same_agent(loaded, agent)
    assert loaded.act(np.ones(2)) == agent.act(np.ones(2))


def test_another_hierarchy_is_refused(tmp_path):
    Agent(policy(), 3).save(tmp_path / "agent")
    Agent.load(tmp_path / "agent", policy())
    others = (
        LinTS(linear(np.ones((6, 2)), 2)),
        ThompsonSampling(ClosedForm(linear(np.ones((6, 2)), 2))),
        ThompsonSampling(ClosedForm(linear(np.ones((6, 2)), 3))),
    )
    for other in others:
        with pytest.raises(AgentFileError, match=r"agent is the file of .* another policy"):
            Agent.load(tmp_path / "agent", other)


@pytest.mark.parametrize("x64", [False, True])
def test_another_precision_is_refused(x64, tmp_path):
    with jax.enable_x64(x64):
        Agent(policy(), 3).save(tmp_path / "agent")
    there, here = ("float64", "float32") if x64 else ("float32", "float64")
    with (
        jax.enable_x64(not x64),
        pytest.raises(AgentFileError, match=rf"written in {there}.*computes in {here}.*{x64}\)"),
    ):
        Agent.load(tmp_path / "agent")


def test_no_file():
    with pytest.raises(FileNotFoundError):
        Agent.load("nowhere")


def saved() -> bytes:
    agent = Agent(policy(), 3, labels=LABELS, keep=8)
    live(agent, 3, seed=1)
    return to_bytes(*to_file(agent.state()))


def mutated(content: bytes, rng) -> bytes:
    """Cut short, a bit flipped, bytes put in, taken out or overwritten, two pieces exchanged."""
    spoilt = bytearray(content)
    place, other = sorted(rng.integers(0, len(content), 2).tolist())
    length = int(rng.integers(1, 40))
    match rng.integers(0, 6):
        case 0:
            del spoilt[place:]
        case 1:
            spoilt[place] ^= 1 << int(rng.integers(8))
        case 2:
            spoilt[place:place] = rng.bytes(length)
        case 3:
            del spoilt[place : place + length]
        case 4:
            spoilt[place : place + length] = rng.bytes(len(spoilt[place : place + length]))
        case 5:
            first, second = spoilt[place : place + 8], spoilt[other : other + 8]
            spoilt[place : place + 8], spoilt[other : other + len(second)] = second, first
    return bytes(spoilt)


def check_mutations(count: int, tmp_path) -> None:
    content, rng, path = saved(), np.random.default_rng(0), tmp_path / "agent"
    expected = from_bytes(content, "file")
    same = 0
    for _ in range(count):
        spoilt = mutated(content, rng)
        path.write_bytes(spoilt)
        if spoilt == content:
            same += 1
            found = to_file(Agent.load(path).state())
            assert found[0] == expected[0]
            for name, array in expected[1].items():
                np.testing.assert_array_equal(found[1][name], array)
        else:
            with pytest.raises(AgentFileError):
                Agent.load(path)
    assert same < count / 20


def test_a_mutated_file_is_refused(tmp_path):
    check_mutations(500, tmp_path)


@pytest.mark.slow
def test_ten_thousand_mutated_files_are_refused(tmp_path):
    check_mutations(10_000, tmp_path)


def places(node, path=()):
    yield path
    parts = node.items() if isinstance(node, dict) else ()
    for key, part in enumerate(node) if isinstance(node, list) else parts:
        yield from places(part, (*path, key))


@pytest.mark.parametrize("junk", [None, -1, 10**30, "x", [], {}])
def test_a_crafted_header_does_no_harm(junk):
    """With a checksum that is right: an agent or mixts's own error, whatever stands where."""
    header, arrays = from_bytes(saved(), "file")
    refused, tried = 0, 0
    for *way, last in [path for path in places(header) if path]:
        spoilt = json.loads(json.dumps(header))
        inner = spoilt
        for key in way:
            inner = inner[key]
        inner[last] = junk
        tried += 1
        try:
            state = from_file(spoilt, arrays, "file")
        except AgentFileError:
            refused += 1
        else:
            assert state.counts.keys() == header["counts"].keys()
    assert refused > tried / 3


def test_crafted_arrays_do_no_harm():
    """Arrays of another shape, type or name, or none, in any place."""
    header, arrays = from_bytes(saved(), "file")
    for name, array in arrays.items():
        swapped = [array[..., None], np.zeros(array.shape, np.int8)]
        for other in swapped:
            with pytest.raises(AgentFileError):
                from_file(header, arrays | {name: other}, "file")
        with pytest.raises(AgentFileError):
            from_file(header, {n: a for n, a in arrays.items() if n != name}, "file")


def test_another_kind_of_file_is_refused():
    header, arrays = from_bytes(saved(), "file")
    with pytest.raises(AgentFileError, match="holds no agent, but 'simulation'"):
        from_file(header | {"kind": "simulation"}, arrays, "file")


@pytest.mark.parametrize(
    "change",
    [
        {"labels": ["a", "b", "c", "d", "e", "f", "a"]},
        {"labels": "abcdef"},
        {"labels": dict.fromkeys("abcdef")},
        {"made": 2**63},
        {"settings": {"forget": 2.0}},
        {"settings": {"forget": float("nan")}},
        {"settings": {"forget_every": 0}},
        {"settings": {"forget_every": 2**32}},
        {"settings": {"keep": 3}},
        {"settings": {"propensity_draws": 0}},
    ],
)
def test_a_crafted_header_that_no_agent_has(change):
    header, arrays = from_bytes(saved(), "file")
    if "settings" in change:
        settings = decode(header["settings"], {}) | change["settings"]
        change = {"settings": encode(settings)}
    with pytest.raises(AgentFileError):
        from_file(header | change, arrays, "file")


@pytest.mark.parametrize(("name", "value"), [("contexts", np.nan), ("is_open", False)])
def test_crafted_numbers_that_no_agent_has(name, value):
    header, arrays = from_bytes(saved(), "file")
    with pytest.raises(AgentFileError):
        from_file(header, arrays | {name: np.full_like(arrays[name], value)}, "file")


def test_a_folder_that_is_not_there(tmp_path):
    path = tmp_path / "nowhere" / "agent"
    with pytest.raises(FileNotFoundError, match=r"No such file.*nowhere/agent'"):
        Agent(policy()).save(path)
