"""The log of decisions: a ring that knows of the newest ones whether their reward has come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixts.bandit import AlreadyRewarded, Decision, Decisions, ExpiredDecision, UnknownDecision
from mixts.bandit.agent.decisions import DecisionLog


def rows(first: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Contexts and actions that say which decision they belong to."""
    ids = np.arange(first, first + n)
    return np.stack([ids, -ids], axis=1).astype(float), ids.astype(np.int32) % 7


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9)),
        st.tuples(st.just("one"), st.just(1)),
        st.tuples(st.just("reward"), st.integers(-1, 60)),
    ),
    max_size=40,
)


@given(steps=steps, keep=st.integers(9, 20))
def test_against_a_dictionary(steps, keep):
    """Whatever is appended and rewarded, in whatever order: as a dictionary that forgets the oldest."""
    log = DecisionLog.empty(keep, 2, float)
    for name, column in log.columns.items():
        setattr(log, name, column[:2].copy())  # little room at first, so that it has to grow
    waiting: dict[int, int] = {}
    plain: dict[int, bool] = {}
    made, expired = 0, 0
    for what, n in steps:
        if what == "reward":
            expected = (
                UnknownDecision
                if not 0 <= n < made
                else ExpiredDecision
                if n < made - log.room
                else None
                if n in waiting
                else AlreadyRewarded
            )
            if expected is not None:
                with pytest.raises(expected, match=str(n)):
                    log.find(np.array([n]))
                with pytest.raises(expected, match=str(n)):
                    log.find_one(n)
                continue
            (row,) = log.find(np.array([n]))
            assert row == log.find_one(n)
            assert log.contexts[row].tolist() == [n, -n]
            assert log.actions[row] == waiting.pop(n)
            assert log.probabilities[row] == 1 / (1 + n)
            assert log.is_plain[row] == plain[n]
            log.rewards[row] = n
            continue
        contexts, actions = rows(made, n)
        chances, is_plain = 1 / (1 + made + np.arange(n)), made % 2 == 0
        plain |= dict.fromkeys(range(made, made + n), is_plain)
        if what == "one":
            expired += log.append_one(contexts[0], int(actions[0]), chances[0], is_plain=is_plain)
        else:
            expired += log.append(contexts, actions, chances, is_plain=is_plain)
        waiting |= {made + i: int(action) for i, action in enumerate(actions)}
        made += n
        waiting = {i: action for i, action in waiting.items() if i >= made - keep}
    assert log.made == made
    assert log.room <= keep
    assert log.waiting.sum() == len(waiting)
    rewarded = sum(what == "reward" for what, _ in steps)
    assert made - expired - len(waiting) <= rewarded


def test_room_grows_to_what_is_kept():
    log = DecisionLog.empty(3000, 2, np.float32)
    assert log.room == 1024
    log.append(*rows(0, 2500))
    assert log.room == 3000
    assert log.append(*rows(2500, 3000)) == 2500
    assert log.room == 3000


def test_rows_stay_where_they_are_while_room_grows():
    """To copy a hundred thousand of them would take milliseconds."""
    log = DecisionLog.empty(5000, 2, np.float32)
    log.append(*rows(0, 1500))
    before = log.contexts
    for first in range(1500, 7000, 500):
        log.append(*rows(first, 500))
    assert np.shares_memory(before, log.contexts)
    assert log.contexts[log.kept() % log.room, 0].tolist() == list(range(2000, 7000))
    assert len(log.copy().contexts) == 5000


def test_many_are_found_or_refused_together():
    log = DecisionLog.empty(10, 2, float)
    log.append(*rows(0, 6))
    assert log.find(np.array([5, 0, 3])).tolist() == [5, 0, 3]
    with pytest.raises(UnknownDecision, match="the id 9, 8; ids run from 0 to 5"):
        log.find(np.array([1, 9, 8]))
    with pytest.raises(AlreadyRewarded, match="decision 4"):
        log.find(np.array([4, 1, 4]))
    with pytest.raises(UnknownDecision, match="10, 11, 12, 13, 14 and 2 more"):
        log.find(np.arange(10, 17))


def test_decisions_are_a_sequence():
    decisions = Decisions(np.array([4, 5]), np.array([1, 0]), np.array([0.5, 0.25]), ["a", "b"])
    assert list(decisions) == [Decision(4, "b", 1, 0.5), Decision(5, "a", 0, 0.25)]
    assert decisions[-1] == Decision(5, "a", 0, 0.25)
    assert list(decisions[1:]) == [decisions[1]]
    assert decisions.actions == ["b", "a"]
    assert len(decisions) == 2
    nameless = Decisions(np.array([4]), np.array([1]), None, None)
    assert nameless[0] == Decision(4, 1, 1, None)
    assert nameless.actions == [1]
