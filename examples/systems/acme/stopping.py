"""What the program's stop interrupts."""

from collections.abc import Iterator
from contextlib import contextmanager

import launchpad as lp

STOP_S = 10.0  # within which all workers are told of the stop that one has ended by


@contextmanager
def until_stopped() -> Iterator[None]:
    """Leave the block when the program stops, also by a call to a worker that was told of it earlier."""
    try:
        yield
    except lp.Stopped:
        if not lp.stop_event().is_set():
            raise
    except lp.courier.CourierError:
        if not lp.stop_event().wait(STOP_S):
            raise
