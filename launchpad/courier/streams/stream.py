"""A stream of items from a server, as its consumer sees it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

from launchpad.courier.streams.stream_call import StreamCall, Watcher


class Stream(Iterator[Any]):
    """What a call returns when the method returns an iterator, as a generator does.

    Example:
        with client.rows(table="users") as rows:    # or: for row in client.rows("users"): …
            for row in rows:
                if wanted(row):
                    break

    The server makes items from the call on, at most a window (64 items, 8 MiB) ahead of what has
    been taken here. The end of the server's iterator ends this one; its exception is raised here,
    after all items before it. When the connection is lost, StreamBroken is raised.

    `close`, the end of the block, or dropping the stream closes the server's iterator: the `finally`
    of a generator runs. The client's timeout limits the call and the wait for each item; past it
    DeadlineExceeded is raised, and the stream is open still. Any number of threads may take items;
    each goes to one of them.
    """

    def __init__(self, call: StreamCall) -> None:
        self._call = call
        self._abandon = weakref.finalize(self, call.abandon)

    def __next__(self) -> Any:
        return self._call.take()

    def close(self) -> None:
        """Closes the server's iterator; iterating goes no further. Nothing happens the second time."""
        self._abandon.detach()
        self._call.close()

    def watch(self, watcher: Watcher) -> None:
        """Has the watcher told of the end."""
        self._call.watcher = watcher

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a stream cannot be sent inside of another value, nor pickled: give it to a call as an argument "
            "of its own, or collect its items in a list"
        )
