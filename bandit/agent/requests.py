"""What goes into a compiled call besides policy and state, in few arrays, and what scores say."""

from struct import Struct

import numpy as np

__all__ = [
    "HEAD",
    "OBSERVED",
    "best_of",
    "packed_observation",
    "packed_observations",
    "packed_request",
    "pad",
    "padded_size",
]

# What precedes the context, by the bytes of a number: joining bytes is faster than filling an array.
_REQUEST = {4: Struct("<III"), 8: Struct("<I4xI4xI4x")}
_OBSERVATION = {4: Struct("<IIff"), 8: Struct("<I4xI4xdd")}
HEAD = 3  # numbers before the context of a request
OBSERVED = 4  # and before that of an observation


def packed_request(key: tuple[int, int], number: int, context: np.ndarray) -> np.ndarray:
    """An agent's key, the number of a decision and its context in one array of words."""
    head = _REQUEST[context.itemsize].pack(*key, number & 0xFFFFFFFF)
    return np.frombuffer(head + context.tobytes(), np.uint32)


def packed_observation(
    number: int, action: int, reward: float, exposure: float, context: np.ndarray
) -> np.ndarray:
    """The number of an observation, its action, reward, exposure and context in one array of words."""
    head = _OBSERVATION[context.itemsize].pack(number & 0xFFFFFFFF, action, reward, exposure)
    return np.frombuffer(head + context.tobytes(), np.uint32)


def packed_observations(
    first: int,
    contexts: np.ndarray,
    actions: np.ndarray,
    rewards: np.ndarray,
    exposure: np.ndarray,
) -> np.ndarray:
    """(n, words) the `packed_observation` of each of many, numbered from `first` on."""
    rows = zip(actions.tolist(), rewards.tolist(), exposure.tolist(), contexts, strict=True)
    return np.stack([packed_observation(first + i, *row) for i, row in enumerate(rows)])


def padded_size(n: int) -> int:
    """The next power of two, so that many sizes share one program."""
    return 1 << (n - 1).bit_length()


def pad(rows: np.ndarray, blank: float = 0) -> np.ndarray:
    """Rows (n, ...) followed by blanks, in a new array whose length is a power of two.

    A compiled call may read its arguments after it has returned, when the caller has changed the rows.
    """
    full = np.full((padded_size(len(rows)), *rows.shape[1:]), blank, rows.dtype)
    full[: len(rows)] = rows
    return full


def best_of(scores: np.ndarray, top: int) -> np.ndarray:
    """(n, top) the actions with the best scores (n, K), the best first; of equals, the first."""
    if top == 1:
        return scores.argmax(1)[:, None].astype(np.int32)
    return np.argsort(-scores, axis=1, kind="stable")[:, :top].astype(np.int32)
