"""A buffer in front of a queue. Each call to the queue sends all items that the buffer holds at that time.

the user's thread ──add──▶ buffer ──a thread of its own──▶ the queue
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from launchpad.courier import fork
from launchpad.courier.interruptions import Condition, Lock
from launchpad.courier.own_threads import OwnThread
from launchpad.errors import NotRunningError, Stopped
from launchpad.queues.packing import Item

# The largest number of items, and of bytes, in the buffer.
_MOST = 4000
_MAX_BYTES = 4 << 20
_AT_ONCE = 1000
_LOOK_S = 0.2


class BufferedPut:
    """A buffer in front of a queue, with a thread that empties it while the `with` block is open.

    Leaving the block waits until all items are put, and raises the error of `put` if there was one.

    Args:
        put: A function that puts items, and returns False when the queue accepts no more.
        is_stopping: A function that returns True if the program stops. From then on, nothing here waits.

    Attributes:
        accepted: The number of items that the queue has accepted.
    """

    def __init__(self, put: Callable[[list[Item]], bool], is_stopping: Callable[[], bool]) -> None:
        self.accepted = 0
        self._put = put
        self._is_stopping = is_stopping
        # It is notified when an item comes into the empty buffer, when the buffer has been emptied, and when
        # no more items come.
        self._changed = Condition(Lock())
        self._buffer: list[Item] = []
        self._size = 0
        self._is_last = False
        self._is_over = False
        self._error: BaseException | None = None
        self._thread = OwnThread(target=self._send, name="launchpad-put")
        fork.drop_in_child(self)

    def add(self, item: Item) -> bool:
        """Add an item to the buffer, and wait while it is full. False if the queue accepts no more."""
        with self._changed:
            while len(self._buffer) >= _MOST or self._size >= _MAX_BYTES:
                if self._is_over:
                    return False
                if self._is_stopping():
                    raise Stopped
                self._changed.wait(_LOOK_S)
            self._buffer.append(item)
            self._size += len(item)
            if len(self._buffer) == 1:
                self._changed.notify()
            return not self._is_over

    def __enter__(self) -> BufferedPut:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        # Leave without waiting after Ctrl-C or Stopped, which are not Exceptions.
        leaves = not (error is None or isinstance(error, Exception))
        with self._changed:
            self._is_last = True
            self._is_over = self._is_over or leaves
            self._changed.notify()
        while (
            self._thread.is_alive() and not leaves and not (self._is_over and self._is_stopping())
        ):
            self._thread.join(_LOOK_S)
        if error is None and self._error is not None:
            raise self._error

    def drop_inherited(self) -> None:
        """Stop the buffer in a forked child. The thread runs in the parent, which puts the items."""
        # Make a new lock, because another thread may have held the old one at the fork.
        self._changed = Condition(Lock())
        self._buffer = []
        self._is_over = True
        self._error = NotRunningError(
            f"put_from() does not go on here: {fork.describe_child()} in the middle of it, and that one puts"
            " the items. Call put_from() in the child."
        )

    def _send(self) -> None:
        while True:
            with self._changed:
                while not self._buffer and not self._is_last and not self._is_over:
                    self._changed.wait()
                items = self._buffer
                self._buffer = []
                self._size = 0
                if not items or self._is_over:
                    return
                self._changed.notify()
            try:
                for start in range(0, len(items), _AT_ONCE):
                    part = items[start : start + _AT_ONCE]
                    if not self._put(part):
                        self._is_over = True
                        return
                    self.accepted += len(part)
            except BaseException as put_error:
                self._error = put_error
                self._is_over = True
                return
            finally:
                with self._changed:
                    self._changed.notify()
