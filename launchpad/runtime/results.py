"""Results: the values that workers' functions or `run()`s return, on their way to the script.

    worker      returned(name, attempt, value)    ──▶ events.Returned    pickled, as the result of a call is
    supervisor  keeps the value of the last attempt
    script      running.results("trainer")        ◀── value_of(…)        unpickled each time it is asked for

An unpicklable return value doesn't fail the worker, which has done its work. `Running.results()` raises
ResultError instead.
"""

from __future__ import annotations

import pickle
from typing import Any

from launchpad.courier.codec import pickling
from launchpad.errors import ResultError
from launchpad.runtime.events import Returned


def returned(worker: str, attempt: int, value: object) -> Returned | None:
    """Return the event that carries the value; None if the value is None."""
    if value is None:
        return None
    try:
        body, views = pickling.encode(value)
        return Returned(worker, attempt, body, tuple(map(bytearray, views)))
    except Exception as error:  # also MemoryError
        kind = f"a {type(value).__qualname__}, which cannot be sent"
        why = f"{pickling.describe_culprit(value)}: {type(error).__name__}: {error}"
        return Returned(worker, attempt, error=f"{worker} returned {kind}{why}")


def value_of(result: Returned | None) -> Any:
    """Return the value. Each call makes a new object, so that callers cannot change it for each other.

    Raises:
        ResultError: there was a value, but it could not be pickled, or cannot be unpickled here.
    """
    if result is None:
        return None
    if result.error:
        raise ResultError(result.error)
    try:
        return pickle.loads(result.body, buffers=[bytearray(buffer) for buffer in result.buffers])
    except Exception as error:
        raise ResultError(
            f"what {result.worker} returned cannot be unpickled here: {type(error).__name__}: {error}. Its"
            " classes have to be importable in the launching script."
        ) from error
