"""An agent in a folder: opened again it is what it was, whatever happened to it in between."""

import errno
import itertools
import os
import shutil
import threading

import jax.numpy as jnp
import numpy as np
import pytest

from agents import POLICIES, D, K, assert_same_agent, contents, live, policy
from mixts.bandit import Agent, AgentError, LinTS, ThompsonSampling
from mixts.bandit.agent.storage import folder as folders
from mixts.bandit.agent.storage.file import AgentFileError
from mixts.bandit.agent.storage.journal import JournalError
from mixts.bandit.agent.storage.lock import FolderInUse, FolderLock
from mixts.inference import ClosedForm, Laplace
from mixts.models import Gaussian, Hierarchy, Level, Sparse, linear, nonlinear


def reopened(folder, **options) -> Agent:
    """The agent as another process would find it, without the first one's having been closed."""
    copy = folder.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    agent = Agent.open(copy, **options)
    agent.close()
    return agent


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "agent"


def test_opened_again_it_goes_on(folder):
    """Also when snapshots are made on the way, and beside an agent that lives in no folder."""
    plain = Agent(policy(), 3)
    for seed in range(3):
        with Agent.open(folder, policy(), 3, snapshot_every=7) as agent:
            assert live(agent, 6, seed) == live(plain, 6, seed)
            assert_same_agent(reopened(folder), agent)
    assert_same_agent(reopened(folder, policy=policy(), seed=3), plain)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_any_agent_goes_on(name, folder, precision):
    """With many decisions at once, and rewards that are kept, beyond the first room for them."""
    plain = Agent(POLICIES[name](), 3, keep=9)
    for seed in range(3):
        with Agent.open(folder, POLICIES[name](), 3, snapshot_every=7, keep=9) as agent:
            assert live(agent, 6, seed, many=True) == live(plain, 6, seed, many=True)
    assert_same_agent(reopened(folder), plain)


@pytest.mark.slow
def test_every_kind_of_change_is_written_down(folder):
    rng = np.random.default_rng(0)
    with Agent.open(folder, policy(), keep=20) as agent:
        one = agent.act(rng.normal(size=(K, D)), eligible=np.arange(K) < 4)
        slate = agent.slate(rng.normal(size=D), 2)
        many = agent.act_many(rng.normal(size=(3, K, D)))
        agent.reward(one.id, 0.1)
        agent.reward([*slate.ids, many.ids[1]], rng.normal(size=3))
        agent.update(rng.normal(size=(K, D)), 3, 0.3)
        agent.update(rng.normal(size=(2, D)), [0, 5], rng.normal(size=2))
        agent.act_many(rng.normal(size=(18, D)))  # the first ones expire
        found = reopened(folder)
        assert_same_agent(found, agent)
        assert found.counts["expired"] == 1
        assert found.counts["observations"] == 7


def check_actions_come_and_go(folder, make, newcomer) -> None:
    labels = list("abcdef")
    with Agent.open(folder, make(), labels=labels) as agent:
        agent.reward(agent.act([1.0, 0.0]).id, 1.0)
        agent.add_actions(newcomer, labels=["g"])
        agent.remove_actions(["b", "c"])
        agent.reopen_actions("c")
        agent.reward(agent.act([0.0, 1.0]).id, 1.0)
        found = reopened(folder, policy=make(), labels=labels)
        assert_same_agent(found, agent)
        assert found.labels == list("acdefg")


def test_actions_come_and_go(folder):
    check_actions_come_and_go(folder, policy, [[0.3, 0.7]])


def test_numbers_in_the_journal_are_positions(folder):
    """Labels that look like other actions' positions, and labels of every kind, come back."""
    labels = [2, 1, 0, ("b", 1), None, 0.5]
    with Agent.open(folder, policy(), labels=labels) as agent:
        agent.update([1.0, 0.0], 2, 5.0)
        agent.update(np.ones((2, D)), [None, ("b", 1)], [1.0, 2.0])
        agent.add_actions([[0.3, 0.7]], labels=[("c", 2.5)])
        agent.remove_actions([0])
        found = reopened(folder)
        assert_same_agent(found, agent)
        assert found.labels == [2, 1, ("b", 1), None, 0.5, ("c", 2.5)]
        assert found.state().observations.newest()[1].tolist() == [0, 4, 3]
        with pytest.raises(TypeError, match="frozenset cannot be written to a journal"):
            agent.add_actions([[0.3, 0.7]], labels=[frozenset("ab")])
        assert_same_agent(reopened(folder), agent)


def test_labels_that_no_file_can_hold(folder):
    labels = [frozenset("ab"), *"bcdef"]
    with pytest.raises(TypeError, match=r"the label frozenset.* cannot be written to a file"):
        Agent.open(folder, policy(), labels=labels)
    agent = Agent(policy(), labels=labels)
    with pytest.raises(TypeError, match="make the agent with such labels"):
        agent.save(folder)


@pytest.mark.slow
def test_actions_with_few_parents_come_and_go(folder):
    def make():
        few = Sparse([[0, 1], [1, 0], [0, 1]] * 2, [[1.0, 0.5], [1.0, 0.0], [0.5, 1.0]] * 2)
        return ThompsonSampling(ClosedForm(linear(few, D)))

    check_actions_come_and_go(folder, make, Sparse([[0, 1]], [[0.3, 0.7]]))


def test_a_snapshot_leaves_little_to_do_again(folder, monkeypatch):
    redone = []
    monkeypatch.setattr(folders, "repeat", lambda *record: redone.append(record))
    with Agent.open(folder, policy()) as agent:
        live(agent, 5, 0)
        agent.snapshot()
        agent.snapshot()
        assert_same_agent(reopened(folder), agent)
        assert redone == []
        agent.act(np.ones(D))
        reopened(folder)
        assert len(redone) == 1


def test_old_files_are_removed(folder):
    with Agent.open(folder, policy(), snapshot_every=3) as agent:
        live(agent, 20, 0)
    kinds = [name.split("-")[0] for name in contents(folder)]
    assert kinds.count("snapshot") == 2
    assert 2 <= kinds.count("journal") <= 3
    assert kinds.count("lock") == 1


def test_refusals_are_not_written_down(folder):
    with Agent.open(folder, policy()) as agent:
        agent.act(np.ones(D))
        before = contents(folder)
        for wrong in (lambda: agent.reward(7, 1.0), lambda: agent.act(np.full(D, np.nan))):
            with pytest.raises(AgentError):
                wrong()
        assert contents(folder) == before


def grown(folder) -> None:
    """A folder with two snapshots and what came after."""
    with Agent.open(folder, policy()) as agent:
        for seed in range(3):
            live(agent, 3, seed)
            if seed < 2:
                agent.snapshot()


def test_a_damaged_snapshot_gives_way_to_the_one_before(folder):
    grown(folder)
    expected = reopened(folder)
    newest = max(folder.glob("snapshot-*"))
    content = bytearray(newest.read_bytes())
    content[100] ^= 1
    newest.write_bytes(content)
    assert_same_agent(reopened(folder), expected)
    for file in folder.glob("snapshot-*"):
        file.write_bytes(b"")
    with pytest.raises(AgentFileError, match=f"{newest.name} is not a mixts file"):
        reopened(folder)


def test_a_damaged_journal_is_refused(folder):
    grown(folder)
    journal = max(folder.glob("journal-*"))
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 1
    journal.write_bytes(content)
    with pytest.raises(AgentFileError, match=journal.name):
        reopened(folder)


def test_a_missing_journal_is_refused(folder):
    grown(folder)
    for journal in sorted(folder.glob("journal-*"))[1:]:
        content = journal.read_bytes()
        journal.unlink()
        with pytest.raises(AgentFileError, match="missing"):
            reopened(folder)
        journal.write_bytes(content)
    reopened(folder)


def test_an_unfinished_record_is_dropped_and_written_over(folder):
    with Agent.open(folder, policy()) as agent:
        live(agent, 4, 0)
        before = reopened(folder)
        agent.act(np.ones(D))
    journal = max(folder.glob("journal-*"))
    journal.write_bytes(journal.read_bytes()[:-5])
    assert_same_agent(reopened(folder), before)
    with Agent.open(folder) as agent:
        decision = agent.act(np.ones(D))
        assert_same_agent(reopened(folder), agent)
    assert before.state().decisions.made == decision.id


def test_every_moment_of_a_snapshot_is_safe(folder, monkeypatch):
    """A crash after any step on the disk: what is there then is opened to the same agent."""
    moments = []

    def watched(module, name):
        step = getattr(module, name)

        def call(*args, **kwargs):
            result = step(*args, **kwargs)
            copy = folder.with_name(f"moment-{len(moments)}")
            shutil.copytree(folder, copy)
            moments.append(copy)
            return result

        monkeypatch.setattr(module, name, call)

    with Agent.open(folder, policy()) as agent:
        for seed in range(3):
            live(agent, 3, seed)
            if seed < 2:
                agent.snapshot()
        for name in ("open", "fsync", "write", "replace", "unlink", "close"):
            watched(os, name)
        agent.snapshot()
        monkeypatch.undo()
        assert len(moments) > 6
        for moment in moments:
            found = Agent.open(moment)
            found.close()
            assert_same_agent(found, agent)


def test_a_beginning_that_was_interrupted(folder):
    folder.mkdir()
    (folder / f"journal-{0:020}").touch()
    (folder / f".snapshot-{0:020}.0123456789abcdef").write_bytes(b"half")
    with Agent.open(folder, policy(), 3) as agent:
        live(agent, 2, 0)
        assert_same_agent(reopened(folder), agent)
    assert not list(folder.glob(".*"))
    (folder / f"snapshot-{0:020}").unlink()
    with pytest.raises(AgentFileError, match="journals but no snapshot"):
        reopened(folder, policy=policy(), seed=3)


def test_one_agent_at_a_time(folder):
    with (
        Agent.open(folder, policy()),
        pytest.raises(FolderInUse, match=r"is in use.*has not been closed"),
    ):
        Agent.open(folder, policy())
    with Agent.open(folder, policy()):
        pass


def test_a_refused_folder_is_not_left_locked(folder):
    with pytest.raises(AgentFileError, match="holds no agent; hand in a policy"):
        Agent.open(folder)
    with Agent.open(folder, policy()):
        pass


def test_what_it_was_made_with_must_agree(folder):
    with Agent.open(folder, policy(), 3, labels=list("abcdef"), keep=9) as agent:
        assert agent.labels == list("abcdef")
    for wrong, message in (
        ({"seed": 4}, "another seed than 4"),
        ({"seed": 3, "keep": 10}, "keep=9, not 10"),
        ({"seed": 3, "labels": list("abcdxf")}, "labels="),
        ({"seed": 3, "forget": 0.5}, r"forget=None, not 0\.5"),
        ({"seed": 3, "policy": LinTS(linear(np.ones((6, 2)), D))}, "another policy"),
    ):
        with pytest.raises(AgentFileError, match=message):
            Agent.open(folder, **({"policy": policy()} | wrong))
    with pytest.raises(TypeError, match="no argument 'keeps'; it has keep, "):
        Agent.open(folder, policy(), 3, keeps=9)
    with Agent.open(folder, policy(), 3, labels=list("abcdef"), keep=9, forget=None):
        pass


@pytest.mark.slow
def test_parts_that_a_file_cannot_hold(folder):
    def link(u):
        return jnp.arctan(u)

    policy = ThompsonSampling(Laplace(nonlinear(np.ones((3, 1)), D, link=link)))
    with Agent.open(folder, policy, snapshot_every=2) as agent:
        agent.reward(agent.act(np.ones(D)).id, 1.0)
        agent.act(np.ones(D))
    with pytest.raises(AgentFileError, match="cannot hold"):
        Agent.open(folder)
    with Agent.open(folder, policy) as found:
        assert_same_agent(found, agent)


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_changes_nothing(folder, monkeypatch):
    """The call fails, the agent is what it was, and takes nothing in until it is opened again."""
    with Agent.open(folder, policy(), 3) as agent:
        live(agent, 3, 0)
        waiting = agent.act(np.ones(D)).id
        before = agent.state()
        assert agent.trouble is None
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(JournalError, match="No space left"):
            agent.act(np.ones(D))
        monkeypatch.undo()
        for call in (lambda: agent.reward(waiting, 1.0), lambda: agent.act(np.ones(D))):
            with pytest.raises(JournalError, match="has failed before"):
                call()
        assert "No space left" in agent.trouble
        assert_same_agent(agent, Agent.restore(before))
        agent.probabilities(np.ones(D), 10)  # changes nothing, and is still answered
    with Agent.open(folder) as agent:
        assert_same_agent(agent, Agent.restore(before))
        agent.reward(waiting, 1.0)


def test_a_snapshot_that_does_not_fit_does_not_fail_the_call(folder, monkeypatch):
    with Agent.open(folder, policy(), 3, snapshot_every=2) as agent:
        monkeypatch.setattr(folders, "write_state", full)
        agent.act(np.ones(D))
        with pytest.warns(UserWarning, match=r"no snapshot could be written.*No space"):
            agent.act(np.ones(D))
        agent.act(np.ones(D))
        with pytest.raises(OSError, match="No space"):
            agent.snapshot()
        assert_same_agent(reopened(folder), agent)
        monkeypatch.undo()
        agent.snapshot()
        assert len(list(folder.glob("snapshot-*"))) == 2
        assert_same_agent(reopened(folder), agent)


def test_a_change_that_fails_after_it_was_written_down(folder, monkeypatch):
    """The agent takes nothing more in; opened again, it has made the change."""
    with Agent.open(folder, policy(), 3) as agent:
        decision = agent.act(np.ones(D))

        def fail(*_):
            raise MemoryError("out of memory")

        monkeypatch.setattr(agent.engine, "learn_one", fail)
        with pytest.raises(MemoryError):
            agent.reward(decision.id, 1.0)
        monkeypatch.undo()
        with pytest.raises(JournalError, match="out of memory"):
            agent.act(np.ones(D))
    with Agent.open(folder) as agent:
        assert agent.counts["observations"] == 1


def test_a_closed_agent_cannot_be_changed(folder):
    agent = Agent.open(folder, policy())
    agent.close()
    with pytest.raises(JournalError, match="was closed"):
        agent.act(np.ones(D))
    assert "was closed" in agent.trouble
    plain = Agent(policy())
    assert plain.trouble is None
    for call in (plain.close, plain.snapshot):
        with pytest.raises(TypeError, match="lives in no folder"):
            call()


def test_closed_twice(folder):
    """The second time it must not close another file, which has the number of its own by now."""
    with Agent.open(folder, policy()) as agent:
        agent.close()
        other = os.open(folder / "lock", os.O_RDONLY)
        agent.close()
        assert os.fstat(other).st_ino == (folder / "lock").stat().st_ino
        os.close(other)


def test_a_forked_process_changes_nothing(folder, monkeypatch):
    """As in one, where the lock is no longer held; a real one must not compute anything with JAX."""
    with Agent.open(folder, policy(), 3) as agent:
        live(agent, 3, 0)
        before = contents(folder)
        with monkeypatch.context() as forked:
            kept = agent.recorder.folder
            forked.setattr(kept, "lock", FolderLock(folder.parent))
            kept.lock.release()
            for call in (lambda: agent.act(np.ones(D)), agent.snapshot):
                with pytest.raises(JournalError, match="open agents after the fork"):
                    call()
        assert contents(folder) == before
        live(agent, 3, 1)


def test_a_file_is_no_folder(folder):
    Agent(policy()).save(folder)
    with pytest.raises(AgentFileError, match=r"is a file, not a folder; Agent\.load reads"):
        Agent.open(folder, policy())
    with pytest.raises(AgentFileError, match="holds no agent"):
        Agent.open(folder.with_name("mistyped"))
    assert not folder.with_name("mistyped").exists()


def test_labels_of_the_hierarchy(folder):
    """Not to name labels is to name those that the hierarchy declares."""
    level = Level("action", 2, labels=["a", "b"])
    made = ThompsonSampling(ClosedForm(Hierarchy([level], Gaussian(), D)))
    for labels in (None, None, ["a", "b"], (label for label in "ab")):
        with Agent.open(folder, made, labels=labels) as agent:
            assert agent.labels == ["a", "b"]
    for wrong in (["a"], "ab", 5):
        with pytest.raises((TypeError, ValueError), match=r"expected (a sequence of )?2"):
            Agent.open(folder, made, labels=wrong)


def test_threads_lose_nothing(folder):
    """Everything answered is there, each decision as it was answered, with snapshots on the way."""
    answered = [[] for _ in range(4)]

    def use(answers, seed):
        rng = np.random.default_rng(seed)
        for _ in range(25):
            decision = agent.act(rng.normal(size=D))
            agent.reward(decision.id, 1.0)
            answers.append((decision.id, decision.index))

    with Agent.open(folder, policy(), 3, snapshot_every=30) as agent:
        threads = [threading.Thread(target=use, args=(a, i)) for i, a in enumerate(answered)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = reopened(folder)
    assert_same_agent(found, agent)
    everything = sorted(itertools.chain(*answered))
    assert [number for number, _ in everything] == list(range(100))
    log = found.state().decisions
    assert [index for _, index in everything] == log.actions[:100].tolist()
    assert not log.waiting.any()


@pytest.mark.parametrize(
    "change",
    [
        {"actions": np.array([K], np.int32)},
        {"actions": np.array([-1], np.int32)},
        {"actions": np.array([0.5])},
        {"actions": np.zeros(0, np.int32)},
        {"contexts": np.full((1, D), np.nan, np.float32)},
        {"contexts": np.ones((1, 1), np.float32)},
        {"contexts": np.ones((2, D), np.float32)},
        {"probabilities": np.array([7.0])},
        {"probabilities": np.array([0.5, 0.5])},
        {"is_plain": "yes"},
    ],
)
def test_a_crafted_record_that_no_agent_has_written(change, folder):
    right = {
        "contexts": np.ones((1, D), np.float32),
        "actions": np.array([2], np.int32),
        "probabilities": np.array([0.5]),
        "is_plain": True,
    }
    with Agent.open(folder, policy()) as agent:
        agent.recorder.folder.record("decide", right)
    with Agent.open(folder, policy()) as agent:
        assert agent.counts["decisions"] == 1
        agent.recorder.folder.record("decide", right | change)
    with pytest.raises(AgentFileError, match="record 2 cannot be done again"):
        Agent.open(folder, policy())
