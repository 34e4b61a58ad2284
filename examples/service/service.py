"""A web service that recommends movies: an agent in a folder, behind FastAPI.

    pip install 'mixts[service]'
    python examples/service/service.py --folder out/service --port 8000

    POST   /decide           {"context": [0.2, 1.0, -0.3]}          -> {"id": 0, "action": ..., ...}
    POST   /reward           {"id": 0, "reward": 1.0}
    POST   /actions          {"label": "Alien", "weights": [0.1, 0.9, 0, 0]}
    DELETE /actions/Alien
    GET    /health

Every change is on the disk before it is answered: kill the process at any moment, start it again, and
it continues with the decisions it would have made. What does not fit is refused with a status that says
why: 404 for an id or a label that does not exist, 409 for a second reward or a label that is in use, 410
for a decision that has expired, 413 for a request too long to be one of these (411 if it does not say how
long it is), 400 or 422 for anything else, and 503 when the disk has failed.

Requests are handled by threads of one process, which share the agent and, when they come together, a
single write to the disk. Run one process for each folder.
"""

import argparse
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

import jax
import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from mixts.bandit import (
    Agent,
    AgentError,
    AlreadyRewarded,
    ExpiredDecision,
    JournalError,
    LabelTaken,
    ThompsonSampling,
    UnknownAction,
    UnknownDecision,
)
from mixts.inference import ClosedForm
from mixts.models import linear

GENRES = ("comedy", "horror", "romance", "documentary")
DIM = 3  # features of a visitor

_STATUS: dict[type[Exception], int] = {
    UnknownDecision: 404,
    UnknownAction: 404,
    AlreadyRewarded: 409,
    LabelTaken: 409,
    ExpiredDecision: 410,
    AgentError: 422,
    JournalError: 503,
}

_LONGEST = 1_000_000  # bytes of a request: a thousand labels of a hundred letters fit

Label = Annotated[str, Field(min_length=1, max_length=100)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]  # not "1.0", and not true
Share = Annotated[Number, Field(ge=0, le=1)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Visit(_Body):
    """A visitor, and the movies that may be shown; all, if none are named."""

    context: Annotated[list[Number], Field(min_length=DIM, max_length=DIM)]
    eligible: Annotated[list[Label], Field(min_length=1, max_length=1000)] | None = None


class Choice(_Body):
    """What to show. Send the reward with the `id`; keep the probability for later evaluation."""

    id: int
    action: str
    probability: float | None


class Outcome(_Body):
    """The reward of a decision."""

    id: Annotated[StrictInt, Field(ge=0, lt=2**63)]
    reward: Number


class Movie(_Body):
    """A new movie, and how much it has of each genre."""

    label: Label
    weights: Annotated[list[Share], Field(min_length=len(GENRES), max_length=len(GENRES))]


def create_app(agent: Agent) -> FastAPI:
    """The service over an open agent, which it closes when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        agent.close()

    app = FastAPI(title="Movies, recommended", lifespan=lifespan)

    def refuse(_: Request, error: Exception) -> JSONResponse:
        status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
        return JSONResponse({"detail": str(error)}, status)

    def refuse_body(_: Request, error: Exception) -> JSONResponse:
        # FastAPI's own answer repeats what was sent, and fails where that is NaN or infinite.
        assert isinstance(error, RequestValidationError)
        wrong = [{"where": part["loc"], "what": part["msg"]} for part in error.errors()]
        return JSONResponse({"detail": wrong}, 422)

    for kind in (AgentError, JournalError):
        app.add_exception_handler(kind, refuse)
    app.add_exception_handler(RequestValidationError, refuse_body)

    @app.middleware("http")
    async def refuse_long(
        request: Request, answer: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        # Before it is read: a body takes many times its length in memory once it is parsed.
        if "transfer-encoding" in request.headers:
            return JSONResponse({"detail": "say how long the request is: content-length"}, 411)
        if int(request.headers.get("content-length", 0)) > _LONGEST:
            return JSONResponse({"detail": f"more than {_LONGEST:,} bytes"}, 413)
        return await answer(request)

    # Plain functions, so that each request has a thread to wait for the disk in.

    @app.post("/decide")
    def decide(visit: Visit) -> Choice:
        decision = agent.act(visit.context, eligible=visit.eligible)
        return Choice(id=decision.id, action=str(decision.action), probability=decision.probability)

    @app.post("/reward", status_code=204, response_class=Response)
    def reward(outcome: Outcome) -> None:
        agent.reward(outcome.id, outcome.reward)

    @app.post("/actions", status_code=201)
    def add(movie: Movie) -> Movie:
        agent.add_actions([movie.weights], labels=[movie.label])
        return movie

    @app.delete("/actions/{label:path}", status_code=204, response_class=Response)
    def remove(label: str) -> None:
        agent.remove_actions([label])

    @app.get("/health")
    def health() -> JSONResponse:
        trouble = agent.trouble
        report = {
            "status": trouble or "ok",
            "actions": len(agent.labels),
            "counts": agent.counts,
            "inference": {kind: int(n) for kind, n in agent.status().counts.items()},
        }
        return JSONResponse(report, 200 if trouble is None else 503)

    return app


def open_agent(folder: str) -> Agent:
    """The agent of the folder: sixty movies at first, and as many more as came since."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(len(GENRES), 0.5), 60)
    policy = ThompsonSampling(ClosedForm(linear(weights, DIM, effect_cov=1.0, action_cov=0.2)))
    labels = [f"movie {i}" for i in range(1, 61)]
    return Agent.open(folder, policy, seed=0, labels=labels, propensity_draws=100)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="Recommend movies over HTTP.")
    parser.add_argument("--folder", default="out/service", help="where the agent lives")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    # Computations are short: waiting for them is faster than handing them to another thread.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    app = create_app(open_agent(options.folder))
    uvicorn.run(app, host=options.host, port=options.port)


if __name__ == "__main__":
    main()
