"""QueueNode: a queue between workers, as a node of the program."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Generic, TypeVar

from launchpad.address import COURIER, Address
from launchpad.courier.checks import is_whole
from launchpad.errors import refuse_unless
from launchpad.nodes.base import Node
from launchpad.nodes.courier import ServiceHandle, Serving, new_server, start
from launchpad.queues.client import Queue
from launchpad.queues.contents import QueueContents
from launchpad.queues.server import QueueServer
from launchpad.runtime import context
from launchpad.runtime.context import RunContext
from launchpad.runtime.executable import Executable
from launchpad.runtime.watermarks import ENDED, OVER, RESTARTED, SUCCEEDED

T = TypeVar("T")

METHODS = "hello put get register close_producer cancel size queue_stats reports".split()
"""What is served."""

_TOLD_WITHIN_S = 10.0

_log = logging.getLogger("launchpad.queue")


class QueueHandle(ServiceHandle[Queue[T]], Generic[T]):
    """Stands for a QueueNode; in a worker it turns into an `lp.Queue`.

    Example:
        rows = program.add_node(lp.QueueNode(maxsize=100), label="rows")
        program.add_node(lp.PyNode(read, rows), label="reader")          # in read: rows.put(row)
    """

    made_into = Queue


class QueueNode(Node["QueueHandle[T]"], Generic[T]):
    """A bounded queue between workers, first in, first out; its handle turns into an `lp.Queue`.

    Example:
        rows = program.add_node(lp.QueueNode[Row](maxsize=1000, producers=4), label="rows")
        with program.group("reader"):
          for shard in shards:
            program.add_node(lp.PyNode(read, shard, rows))      # in read: rows.put(row)
        program.add_node(lp.PyNode(train, rows), label="trainer")   # in train: for row in rows: …

    Args:
        maxsize: How many items wait at most; `put` waits for room.
        producers: How many workers put into it: when so many have closed, iteration ends. None: it ends only
            when it is cancelled, or with the program. A worker that is started again counts once, and has not
            closed.
        redeliver: Whether what a consumer had in hand when it died is delivered again. It may have been
            handled: without, such items are counted and listed as lost, and consumers fetch none ahead.

    It is asked to stop last, so that what others put at their end arrives. What it holds is in memory. If its
    worker fails the program does, unless its group has a restart policy: then all others get QueueLost.
    """

    stops_last = True

    def __init__(
        self, maxsize: int = 1000, producers: int | None = None, *, redeliver: bool = True
    ) -> None:
        super().__init__()
        self.maxsize, self.producers, self.redeliver = maxsize, producers, redeliver
        is_known = producers is None or is_whole(producers, at_least=1)
        refuse_unless(
            self,
            [
                ("maxsize", is_whole(maxsize, at_least=1), "a number of items, at least 1"),
                ("producers", is_known, "how many workers put, or None if that is not known"),
                ("redeliver", isinstance(redeliver, bool), "True or False"),
            ],
        )
        self._address = self.allocate_address(Address("courier", kind=COURIER))

    def create_handle(self) -> QueueHandle[T]:
        return QueueHandle(self, self._address)

    def to_executable(self) -> Executable:
        return ServeQueue(self._address, self.maxsize, self.producers, self.redeliver)

    def __repr__(self) -> str:
        return f"QueueNode(maxsize={self.maxsize}, producers={self.producers})"


@dataclass
class ServeQueue(Serving):
    """Serves a queue, and follows which of the other workers have ended."""

    address: Address
    maxsize: int
    producers: int | None
    redeliver: bool
    _queue: QueueServer | None = None

    def open(self) -> None:
        me = context.current()
        contents, queue_id = self._restored() or (
            QueueContents(self.maxsize, self.producers, self.redeliver),
            "",
        )
        with me.stop.interruption.forbidden():
            self._queue = QueueServer(me.name, contents, queue_id)
            _follow_ends(me, self._queue, is_restored=bool(queue_id))
            self._server = new_server(self.address)
            for method in METHODS:
                self._server.bind(method, getattr(self._queue, method))
            start(self._server, self.address)

    def close(self) -> None:
        if self._queue is not None:
            self._queue.close()
        super().close()

    def save(self) -> None:
        """Before a restart that is planned, or when a later launch goes on with this one's state."""
        self.close()
        if self._queue is not None:
            with context.current().state.saved_states(of_object=True) as states:
                states.save((self._queue.contents, self._queue.queue_id), None, 1)

    def _restored(self) -> tuple[QueueContents, str] | None:
        """What was saved; once, since it does not hold any more when it has been used."""
        me = context.current()
        if not me.is_resumed:
            return None
        with me.state.saved_states(of_object=True) as states:
            found = states.load()
            if found is None or found[1] is None:
                return None
            states.save(None, None, 1)
        contents, queue_id = found[1]
        contents.maxsize, contents.producers = self.maxsize, self.producers
        contents.redeliver = self.redeliver
        if me.attempt == 1:  # another launch: no worker of the last one is left
            for report in contents.end_all():
                _log.warning("%s: %s", me.name, report)
            queue_id = ""
        return contents, queue_id


def _follow_ends(me: RunContext, queue: QueueServer, *, is_restored: bool) -> None:
    """Has the queue told which attempts of other workers have ended, and which are followed by others.

    One that is restored learns first which producers that have closed come again: its consumers must not be
    told the end meanwhile.
    """
    marks = me.link.watermarks

    def ended(worker: str, attempt: int) -> None:
        is_well = marks.get(f"{SUCCEEDED}{worker}") == attempt
        is_over = marks.get(f"{OVER}{worker}") == attempt > marks.get(f"{RESTARTED}{worker}")
        queue.worker_ended(worker, attempt, is_well=is_well, is_over=is_over)

    def is_told() -> bool:
        # That its own attempt before has ended comes with the ends of all others.
        return me.link.has_ended(me.name, me.attempt - 1) or me.stop.event.is_set()

    marks.on_growth(RESTARTED, queue.worker_restarted)
    me.link.watch_ends(ended)
    if is_restored:
        marks.wait_for(is_told, _TOLD_WITHIN_S)
        for worker in marks.names(ENDED, 1):
            ended(worker, marks.get(f"{ENDED}{worker}"))
