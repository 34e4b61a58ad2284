import json
import math
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from mixts.bandit import LinTS
from mixts.inference import ClosedForm, Factored, Nuts, over_devices
from mixts.models import linear

PROGRAM = Path(__file__).parents[1] / "rounds_on_devices.py"
MODEL = linear([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], dim=2)
SEEN = np.ones((4, 2)), np.array([0, 2, 1, 2]), np.array([1.0, -1.0, 0.5, 2.0])


def check(printed: str, devices: int) -> None:
    """The same decisions and posterior as alone; each device has its share, and sends little."""
    found = json.loads(printed.splitlines()[-1])
    assert found["devices"] == found["alone"]
    assert len(set(found["devices"])) > 20
    assert found["same_bits"]
    assert set(found["held"]) == {1204 / devices}
    assert sorted(found["act"]) == ["f32[]", "s32[]"]
    assert found["update"]
    for shape in found["update"]:
        sizes = [int(size) for size in shape.split("[")[1].strip("]").split(",")]
        assert math.prod(sizes) <= 3 * 2 * 2, shape  # the weights of an action on three effects


@pytest.mark.parametrize("model", ["tree", pytest.param("crossed", marks=pytest.mark.slow)])
def test_four_devices_decide_as_one_does(model):
    command = [sys.executable, str(PROGRAM), model, "4"]
    check(subprocess.run(command, check=True, capture_output=True, text=True).stdout, 4)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["tree", "crossed"])
def test_two_processes_decide_as_one_does(model):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, str(PROGRAM), model, "1", port]
    both = [
        subprocess.Popen([*command, process], stdout=subprocess.PIPE, text=True) for process in "01"
    ]
    for process in both:
        printed, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        check(printed, 2)


def test_a_state_is_placed_and_can_do_all_that_it_could():
    plain = ClosedForm(MODEL)
    before = plain.update(plain.init(), [1.0, -1.0], 1, 2.0)
    mesh = jax.make_mesh((1,), ("actions",))
    backend, state = over_devices(plain, before, mesh)
    state, expected = backend.condition(state, *SEEN), plain.condition(before, *SEEN)
    state, expected = backend.forget(state, 0.9), plain.forget(expected, 0.9)
    found, wanted = backend.posterior(state), plain.posterior(expected)
    for level in ("effect", "action"):
        np.testing.assert_allclose(found.mean[level], wanted.mean[level], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.cov[level], wanted.cov[level], rtol=1e-5, atol=1e-6)
    assert state.info.observed == 5
    assert backend.status(state).ok


def test_what_cannot_be_used_changes_nothing():
    backend, state = over_devices(ClosedForm(MODEL))
    moved = jax.jit(lambda b, s, a, y: b.update(s, np.ones(2), a, y))
    for action, reward in ((3, 1.0), (-1, 1.0), (0, np.nan)):
        after = moved(backend, state, action, reward)
        assert after.info.rejected == 1
        for old, new in zip(*map(jax.tree.leaves, (state[:3], after[:3])), strict=True):
            np.testing.assert_array_equal(old, new)


def test_actions_that_drift(x64):
    """What they follow is theirs too, and time passes for all of them."""
    item = MODEL.actions.remade(drift=0.1)
    plain = ClosedForm(MODEL.remade(levels=[MODEL.levels[0], item]))
    backend, state = over_devices(plain)
    expected = plain.init()
    for x, a, y in zip(*SEEN, strict=True):
        state = backend.advance(backend.update(state, x, a, y))
        expected = plain.advance(plain.update(expected, x, a, y))
    for one, other in zip(*map(jax.tree.leaves, (state, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    top = MODEL.levels[0].remade(drift=0.1)
    with pytest.raises(ValueError, match="a level above the actions drifts"):
        over_devices(ClosedForm(MODEL.remade(levels=[top, MODEL.actions])))


def one_device_as(many: int) -> Mesh:
    """A mesh that looks like one of many devices, to be refused."""
    return Mesh(np.array(jax.devices()[:1] * many), ("actions",))


def test_refusals():
    backend = ClosedForm(MODEL)
    with pytest.raises(
        ValueError, match=r"mesh has the axes .'x',.; expected one called 'actions'"
    ):
        over_devices(backend, mesh=jax.make_mesh((1,), ("x",)))
    with pytest.raises(TypeError, match=r"mesh is 4; expected a jax.sharding.Mesh"):
        over_devices(backend, mesh=4)
    with pytest.raises(ValueError, match="3 actions cannot be spread over 4 devices, more than"):
        over_devices(backend, mesh=one_device_as(4))
    with pytest.raises(ValueError, match="equally among 2 devices; use 1, or declare 4 actions"):
        over_devices(backend, mesh=one_device_as(2))
    for other in (Nuts(MODEL), Factored(MODEL)):
        with pytest.raises(
            TypeError, match=f"{type(other).__name__} cannot be spread over devices"
        ):
            over_devices(other)
    with pytest.raises(
        TypeError, match=r"expected a backend, ClosedForm.hierarchy.. A policy takes"
    ):
        over_devices(LinTS(MODEL))
    with pytest.raises(TypeError, match="expected a state of the backend"):
        over_devices(backend, backend)
    smaller = ClosedForm(linear([[1.0]], dim=2)).init()
    with pytest.raises(ValueError, match="state is of 1 actions and the backend of 3"):
        over_devices(backend, smaller)
    with pytest.raises(TypeError, match=r"ClosedForm cannot take in new actions .* over devices"):
        over_devices(backend)[0].with_hierarchy(MODEL)
