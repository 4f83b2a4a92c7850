"""Request lanes: requests about one worker go one after the other, those about others at the same time.

A request takes 10 to 100 ms, which is mostly waiting. If all requests went one after the other, the last of
1,000 workers would be asked to stop only when its time to stop is over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from launchpad.courier.own_threads import OwnThread

_THREADS = 8

Request = Callable[[], object]


class RequestLanes:
    """A lane of requests for each worker, and the threads that send them. Thread-safe.

    Args:
        on_error: Called, in any of the threads, with the exception that a request has raised.
    """

    def __init__(self, on_error: Callable[[Exception], object]) -> None:
        self._on_error = on_error
        self._lanes: dict[str, deque[Request]] = {}
        """The lanes with requests. The first request of a lane may be under way."""

        self._ready: deque[str] = deque()
        """The workers whose lanes have a request that may be sent now."""

        # Held while lanes are read or changed. It is notified when a lane is ready, and at the end.
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [
            OwnThread(target=self._work, name=f"launchpad-requests-{i}") for i in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, worker: str, request: Request) -> None:
        """Have a request sent after all earlier ones of this worker."""
        with self._changed:
            if self._is_closed:
                return
            lane = self._lanes.setdefault(worker, deque())
            lane.append(request)
            if len(lane) == 1:
                self._ready.append(worker)
                self._changed.notify()

    def close(self) -> None:
        """Drop the requests that wait, and wait for those that are under way."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._ready and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return
                worker = self._ready.popleft()
                lane = self._lanes[worker]
                request = lane[0]
            try:
                request()
            except Exception as error:
                # Whatever the error is, the thread must not end: others wait for their requests.
                self._on_error(error)
            with self._changed:
                # Remove it only now. Until then, no other thread may send the next one.
                lane.popleft()
                if lane:
                    self._ready.append(worker)
                    self._changed.notify()
                else:
                    del self._lanes[worker]
