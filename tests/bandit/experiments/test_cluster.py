"""Pieces on a real Dask cluster: the same bits, though a worker is killed; and clear complaints."""

import os
import signal
import sys
import threading

import pytest

from mixts.bandit.experiments import cluster, reproduce
from mixts.bandit.experiments.cluster import ClusterError, play_on_cluster
from mixts.bandit.experiments.pieces import Piece, Store, made_with, pieces_of
from tiny_figures import SIZE, contents, panel, tiny

distributed = pytest.importorskip("distributed")

# Sockets that Dask leaves to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """Three worker processes and their scheduler."""
    folder = tmp_path_factory.mktemp("dask")
    with distributed.LocalCluster(
        n_workers=3,
        threads_per_worker=1,
        dashboard_address=":0",
        local_directory=str(folder),
        silence_logs=50,
    ) as started:
        yield started


@pytest.mark.slow
def test_a_cluster_gives_the_same_bytes_though_a_worker_dies(workers, tmp_path):
    given = [tiny()]
    reproduce(given, tmp_path / "here", SIZE, progress=False)
    with distributed.Client(workers, set_as_default=False) as client:
        pids, killed = client.run(os.getpid), threading.Event()

        def kill_one() -> None:
            """The first worker that is seen at work."""
            while not killed.is_set():
                busy = [address for address, tasks in client.processing().items() if tasks]
                if busy:
                    os.kill(pids[busy[0]], signal.SIGKILL)
                    killed.set()

        killer = threading.Thread(target=kill_one)
        killer.start()
        address = workers.scheduler_address
        reproduce(given, tmp_path / "there", SIZE, progress=False, scheduler=address)
        assert killed.is_set()
        killer.join()
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_a_worker_with_another_mixts_is_refused(workers, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "made_with", lambda: made_with() | {"version": "another"})
    pieces = pieces_of([tiny()], SIZE._replace(seed=9))
    with pytest.raises(
        ClusterError, match=r"a worker has .*'version'.*; expected .*'another'.*install the same"
    ):
        play_on_cluster(pieces, Store(tmp_path), lambda *_: None, workers.scheduler_address)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["another", None])
def test_a_worker_with_other_ratings_is_refused(there, workers, tmp_path, monkeypatch):
    """Or with none: this process sees a file that workers do not see so."""
    ratings, store = tmp_path / "ratings.csv", Store(tmp_path / "pieces")
    if there is not None:
        ratings.write_text(there)
    monkeypatch.setattr(cluster, "content", lambda path: "here")
    monkeypatch.setattr(Piece, "file_name", property(lambda piece: f"{there} {piece.policy}"))
    pieces = pieces_of([tiny(panels=(panel(3),))], SIZE)
    pieces = [piece._replace(panel=panel(3, data=ratings)) for piece in pieces]
    with pytest.raises(ClusterError, match=r"a worker has no '.*ratings.csv', or .* copy it"):
        play_on_cluster(pieces, store, lambda *_: None, workers.scheduler_address)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nowhere", "gopher://127.0.0.1:9"])
def test_nobody_there(address, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 1)
    with pytest.raises(ClusterError, match=f"no Dask scheduler answers at '{address}'"):
        reproduce([tiny()], tmp_path, SIZE, scheduler=address, progress=False)
    assert list(tmp_path.glob("pieces/*")) == []


def test_a_scheduler_without_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "WORKER_SECONDS", 1)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        pytest.raises(ClusterError, match="no worker for 1 seconds; start one: dask worker"),
    ):
        reproduce([tiny()], tmp_path, SIZE, scheduler=empty.scheduler_address, progress=False)


def test_without_dask(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError, match="pip install 'mixts\\[cluster\\]'"):
        reproduce([tiny()], tmp_path, SIZE, scheduler="tcp://127.0.0.1:9", progress=False)
