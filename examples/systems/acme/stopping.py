"""A block that the program's stop may interrupt."""

from collections.abc import Iterator
from contextlib import contextmanager

import launchpad as lp

STOP_S = 10.0  # how long after the first worker the last one may be told of the stop


@contextmanager
def until_stopped() -> Iterator[None]:
    """Leave the block when the program stops, even if a call fails because its server stopped earlier."""
    try:
        yield
    except lp.Stopped:
        if not lp.stop_event().is_set():
            raise
    except lp.courier.CourierError:
        if not lp.stop_event().wait(STOP_S):
            raise
