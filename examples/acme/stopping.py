"""What the program's stop interrupts."""

from collections.abc import Iterator
from contextlib import contextmanager

import launchpad as lp


@contextmanager
def until_stopped() -> Iterator[None]:
    """Leave the block when the program stops, also by a call to a worker that has stopped already."""
    try:
        yield
    except (lp.Stopped, lp.courier.CourierError):
        if not lp.stop_event().is_set():
            raise
