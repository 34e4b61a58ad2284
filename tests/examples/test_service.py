"""The service over real HTTP: what it answers, what it refuses, and that it loses nothing."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import uvicorn

from mixts.bandit import Agent, JournalError
from scripts import script

CLIENTS, ROUNDS = 8, 15


@pytest.fixture(scope="module")
def service():
    return script("examples/service/service.py")


def visitor(url) -> httpx.Client:
    """A client with patience: the first answers are compiled, perhaps on a busy machine."""
    return httpx.Client(base_url=url, timeout=300)


class Running:
    """A server in a thread, on a port that is free."""

    def __init__(self, app):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    def __enter__(self):
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("service") / "agent"


@pytest.fixture(scope="module")
def agent(service, folder):
    return service.open_agent(str(folder))


@pytest.fixture(scope="module")
def client(service, agent):
    with (
        Running(service.create_app(agent)) as running,
        visitor(running.url) as client,
    ):
        yield client


def decide(client, **more) -> dict:
    answer = client.post("/decide", json={"context": [0.2, 1.0, -0.3]} | more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_decision_and_its_reward(client, agent):
    before = agent.counts
    choice = decide(client)
    assert choice["action"] in agent.labels
    assert 0 < choice["probability"] <= 1
    answer = client.post("/reward", json={"id": choice["id"], "reward": 1.0})
    assert (answer.status_code, answer.content) == (204, b"")
    assert agent.counts["decisions"] == before["decisions"] + 1
    assert agent.counts["observations"] == before["observations"] + 1
    chosen = decide(client, eligible=["movie 7"])
    assert (chosen["action"], chosen["probability"]) == ("movie 7", 1.0)


def test_movies_come_and_go(client, agent):
    movie = {"label": "Alien/Aliens", "weights": [0.1, 0.9, 0.0, 0.0]}
    assert client.post("/actions", json=movie).status_code == 201
    assert decide(client, eligible=[movie["label"]])["action"] == movie["label"]
    again = client.post("/actions", json=movie)
    assert again.status_code == 409
    assert "taken" in again.json()["detail"]
    assert client.delete("/actions/Alien%2FAliens").status_code == 204
    assert movie["label"] not in agent.labels
    assert client.delete("/actions/Alien%2FAliens").status_code == 404
    assert client.delete("/actions/Jaws").status_code == 404


def test_refusals_by_the_agent(client):
    number = decide(client)["id"]
    outcome = {"id": number, "reward": 1.0}
    assert client.post("/reward", json=outcome).status_code == 204
    twice = client.post("/reward", json=outcome)
    assert twice.status_code == 409
    assert "already" in twice.json()["detail"]
    unknown = client.post("/reward", json={"id": 10**9, "reward": 1.0})
    assert unknown.status_code == 404
    wrong = client.post("/decide", json={"context": [0, 0, 0], "eligible": ["movie 99"]})
    assert wrong.status_code == 404
    assert "did you mean" in wrong.json()["detail"]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/decide", '{"context": [1, 2]}'),
        ("/decide", '{"context": [1, 2, NaN]}'),
        ("/decide", '{"context": [1, 2, 1e999]}'),
        ("/decide", '{"context": [1, 2, 1e300]}'),
        ("/decide", '{"context": [1, 2, "three"]}'),
        ("/decide", '{"context": [1, 2, "3"]}'),
        ("/decide", '{"context": [1, 2, true]}'),
        ("/decide", '{"context": [1, 2, 1e30]}'),
        ("/decide", '{"context": [1, 2, 3], "eligible": []}'),
        ("/decide", '{"context": [1, 2, 3], "other": 1}'),
        ("/decide", "{"),
        ("/decide", ""),
        ("/reward", '{"id": 0}'),
        ("/reward", '{"id": -1, "reward": 1.0}'),
        ("/reward", '{"id": 1.5, "reward": 1.0}'),
        ("/reward", '{"id": "0", "reward": 1.0}'),
        ("/reward", '{"id": 0, "reward": Infinity}'),
        ("/reward", '{"id": 0, "reward": "1.0"}'),
        ("/reward", '{"id": 0, "reward": true}'),
        ("/actions", '{"label": "", "weights": [0, 0, 0, 1]}'),
        ("/actions", '{"label": "x", "weights": [0, 0, 1]}'),
        ("/actions", '{"label": 3, "weights": [0, 0, 0, 1]}'),
        ("/actions", '{"label": "x", "weights": [0, 0, 0, 1e30]}'),
    ],
)
def test_what_does_not_fit_is_refused(client, agent, path, content):
    made = agent.counts["decisions"], agent.counts["observations"], agent.labels
    answer = client.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]
    assert made == (agent.counts["decisions"], agent.counts["observations"], agent.labels)


def test_long_requests_are_not_read(client, agent):
    made = agent.counts["decisions"]
    content = b'{"context": [' + b"1," * 1_000_000 + b"1]}"
    answer = client.post("/decide", content=content)
    assert (answer.status_code, answer.json()) == (413, {"detail": "more than 1,000,000 bytes"})
    in_parts = client.post("/decide", content=iter([b'{"context": ', b"[1, 2, 3]}"]))
    assert in_parts.status_code == 411
    assert agent.counts["decisions"] == made
    decide(client)


def test_health(client, agent):
    answer = client.get("/health")
    assert answer.status_code == 200
    report = answer.json()
    assert report["status"] == "ok"
    assert report["actions"] == len(agent.labels)
    assert report["counts"] == agent.counts


def test_many_clients_at_once(client, agent):
    """Each decision has an id of its own, each reward counts once, and of two equal ones one wins."""

    def visit(seed: int) -> list[tuple[int, str]]:
        rng, seen = np.random.default_rng(seed), []
        with visitor(client.base_url) as own:
            for _ in range(ROUNDS):
                choice = own.post("/decide", json={"context": rng.normal(size=3).tolist()}).json()
                outcome = {"id": choice["id"], "reward": float(rng.normal())}
                assert own.post("/reward", json=outcome).status_code == 204
                assert own.post("/reward", json=outcome).status_code == 409
                seen.append((choice["id"], choice["action"]))
        return seen

    before = agent.counts
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = sorted(choice for seen in pool.map(visit, range(CLIENTS)) for choice in seen)
    after, count = agent.counts, CLIENTS * ROUNDS
    first = before["decisions"]
    assert [number for number, _ in answers] == list(range(first, first + count))
    assert after["observations"] == before["observations"] + count
    assert after["duplicate"] == before["duplicate"] + count
    state = agent.state()
    actions = [state.labels[i] for i in state.decisions.actions[first : first + count]]
    assert [action for _, action in answers] == actions


def test_started_again_it_goes_on(service, tmp_path):
    folder = str(tmp_path / "agent")
    plain = service.open_agent(str(tmp_path / "other"))
    for _ in range(2):
        app = service.create_app(service.open_agent(folder))
        with Running(app) as running, visitor(running.url) as client:
            for _ in range(2):
                visit = {"context": [1.0, 0.5, 0.0]}
                choice = client.post("/decide", json=visit).json()
                assert choice["action"] == plain.act(visit["context"]).action
                client.post("/reward", json={"id": choice["id"], "reward": 0.5})
                plain.reward(choice["id"], 0.5)
    plain.close()
    with Agent.open(folder) as found:
        assert found.counts["observations"] == 4


def test_a_disk_that_fails(service, tmp_path):
    agent = service.open_agent(str(tmp_path / "agent"))
    with Running(service.create_app(agent)) as running, visitor(running.url) as client:
        agent.recorder.folder.journal.spoil(JournalError("No space left on device"))
        answer = client.post("/decide", json={"context": [1.0, 0.5, 0.0]})
        assert answer.status_code == 503
        assert "No space left" in answer.json()["detail"]
        health = client.get("/health")
        assert health.status_code == 503
        assert "No space left" in health.json()["status"]
