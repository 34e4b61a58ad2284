"""`Status` counts troubles, inside `jit` and over runs, and says them in words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mixts.inference import ClosedForm, Status, Trouble
from mixts.models import linear


def test_nothing_wrong():
    for status in (Status(), Status({}), Status({Trouble.REJECTED: 0, "mine": False})):
        assert status.ok
        assert str(status) == "ok"
        assert Trouble.REJECTED not in status


def test_what_went_wrong():
    status = Status({Trouble.REJECTED: 2, Trouble.UNCONVERGED: 0, Trouble.RISING: True})
    assert not status.ok
    assert Trouble.REJECTED in status
    assert "rejected" in status
    assert Trouble.RISING in status
    assert Trouble.UNCONVERGED not in status
    assert Trouble.STUCK not in status, "not counted at all"
    assert 3 not in status
    assert {kind: int(n) for kind, n in status.counts.items()} == {
        "rejected": 2,
        "unconverged": 0,
        "rising": 1,
    }


def test_text_has_the_counts_and_leaves_out_what_did_not_occur():
    status = Status({Trouble.UNCONVERGED: 3, Trouble.STUCK: 0, Trouble.NOT_FINITE: 1})
    unconverged, not_finite = str(status).split("; ")
    assert unconverged == "3 fits stopped before they had converged"
    assert not_finite == Trouble.NOT_FINITE.sentence


@pytest.mark.parametrize("kind", Trouble)
def test_every_kind_has_a_sentence(kind):
    text = str(Status({kind: 7}))
    assert text == kind.sentence.format(n=7)
    assert kind.value not in ("", text)
    assert "{" not in text


def test_kinds_of_a_user():
    """A policy or a backend of one's own may count what it likes."""
    status = Status({"cold starts": 4})
    assert "cold starts" in status
    assert not status.ok
    assert str(status) == "cold starts: 4"


def test_inside_jit():
    @jax.jit
    def judge(n):
        status = Status({Trouble.REJECTED: n, Trouble.RISING: n > 2})
        return status, jnp.where(status.ok, 1, 0)

    status, good = judge(0)
    assert str(status) == "ok"
    assert good == 1
    status, good = judge(3)
    assert good == 0
    assert (int(status.counts["rejected"]), int(status.counts["rising"])) == (3, 1)


def test_over_runs():
    """Under `vmap` counts have a leading axis; the text has the sum over runs."""
    status = jax.vmap(lambda n: Status({Trouble.REJECTED: n}))(jnp.array([0, 2, 3]))
    np.testing.assert_array_equal(status.counts[Trouble.REJECTED], [0, 2, 3])
    assert Trouble.REJECTED in status
    assert not status.ok
    assert str(status).startswith("5 observations were ignored")
    first = jax.tree.map(lambda leaf: leaf[0], status)
    assert first.ok
    assert str(first) == "ok"


def test_counts_have_one_type():
    """So that a status can be an output of `lax.cond` and a part of a state in `lax.scan`."""
    counts = {Trouble.REJECTED: 1, Trouble.STUCK: np.int64(2), "mine": jnp.asarray(True)}
    assert {n.dtype.name for n in Status(counts).counts.values()} == {"int32"}


def test_of_a_backend_and_of_its_posterior():
    """The posterior adds numbers that are not finite to what the backend counts."""
    backend = ClosedForm(linear([[1.0], [1.0]], dim=1))
    state = jax.jit(backend.update)(backend.init(), jnp.ones(1), 5, 1.0)
    assert Trouble.REJECTED in backend.status(state)
    posterior = backend.posterior(state)
    assert Trouble.REJECTED in posterior.status
    assert Trouble.NOT_FINITE not in posterior.status
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, posterior.mean)
    spoiled = type(posterior)(broken, posterior.cov, None, backend, state)
    assert int(spoiled.status.counts[Trouble.NOT_FINITE]) == 3
    assert int(jax.jit(lambda p: p.status)(spoiled).counts[Trouble.NOT_FINITE]) == 3


def test_a_posterior_shows_its_trouble_unasked():
    backend = ClosedForm(linear([[1.0], [1.0]], dim=1))
    good = backend.posterior(backend.init())
    assert repr(good) == "Posterior(effect (1, 1), action (2, 1))"
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, good.mean)
    shown = repr(type(good)(broken, good.cov, None, backend, good.state))
    assert shown.endswith(f"trouble: {Trouble.NOT_FINITE.sentence})")


def test_a_state_that_is_not_finite():
    """The backend says so itself, also inside `jit`: policies and simulations ask it alone."""
    backend = ClosedForm(linear([[1.0], [1.0]], dim=1))
    state = backend.init()
    spoiled = state._replace(effects=jax.tree.map(lambda leaf: leaf * jnp.nan, state.effects))
    assert Trouble.NOT_FINITE in backend.status(spoiled)
    size = sum(leaf.size for leaf in jax.tree.leaves(state.effects))
    assert int(jax.jit(backend.status)(spoiled).counts[Trouble.NOT_FINITE]) == size > 0
    assert Trouble.NOT_FINITE not in backend.status(state)
