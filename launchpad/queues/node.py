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
"""Names of the methods that the queue serves to its clients."""

_TOLD_WITHIN_S = 10.0

_log = logging.getLogger("launchpad.queue")


class QueueHandle(ServiceHandle[Queue[T]], Generic[T]):
    """A handle of a QueueNode. Inside a worker it turns into an `lp.Queue`.

    Example:
        rows = program.add_node(lp.QueueNode(maxsize=100), label="rows")
        program.add_node(lp.PyNode(read, rows), label="reader")          # in read: rows.put(row)
    """

    made_into = Queue


class QueueNode(Node["QueueHandle[T]"], Generic[T]):
    """A bounded first-in, first-out queue between workers. Its handle turns into an `lp.Queue`.

    Example:
        rows = program.add_node(lp.QueueNode[Row](maxsize=1000, producers=4), label="rows")
        with program.group("reader"):
          for shard in shards:
            program.add_node(lp.PyNode(read, shard, rows))      # in read: rows.put(row)
        program.add_node(lp.PyNode(train, rows), label="trainer")   # in train: for row in rows: …

    Args:
        maxsize: The largest number of waiting items. When the queue is full, `put` waits for room.
        producers: The number of workers that put items. When that many workers have closed the queue,
            iteration ends. With None, iteration ends only when the queue is cancelled or the program stops. A
            restarted worker counts as the same producer, and as open again.
        redeliver: If True, the queue redelivers the items that a consumer held when it died. The consumer
            may already have handled them. If False, the queue counts and reports these items as lost, and
            consumers don't fetch ahead.

    The program stops the queue last, so that items which other workers put while they stop still arrive. The
    queue keeps its items in memory. If the queue's worker fails, the program fails, too. If the queue's group
    has a restart policy, the program goes on instead, and every client gets QueueLost.
    """

    stops_last = True

    def __init__(
        self, maxsize: int = 1000, producers: int | None = None, *, redeliver: bool = True
    ) -> None:
        super().__init__()
        self.maxsize = maxsize
        self.producers = producers
        self.redeliver = redeliver
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
    """An executable that serves a queue, and notifies it when another worker has ended."""

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
        """Save the queue's contents, for a planned restart or for a later launch that resumes this one."""
        self.close()
        if self._queue is not None:
            with context.current().state.saved_states(of_object=True) as states:
                states.save((self._queue.contents, self._queue.queue_id), None, 1)

    def _restored(self) -> tuple[QueueContents, str] | None:
        """Return the saved contents and queue id, or None if nothing is saved. Delete the saved state.

        The saved state is stale as soon as the queue changes, so it must not be restored twice.
        """
        me = context.current()
        if not me.is_resumed:
            return None
        with me.state.saved_states(of_object=True) as states:
            saved_state = states.load()
            if saved_state is None or saved_state[1] is None:
                return None
            states.save(None, None, 1)
        contents, queue_id = saved_state[1]
        contents.maxsize = self.maxsize
        contents.producers = self.producers
        contents.redeliver = self.redeliver
        if me.attempt == 1:
            # This is a new launch, in which no worker of the previous launch exists any more.
            for report in contents.end_all():
                _log.warning("%s: %s", me.name, report)
            queue_id = ""
        return contents, queue_id


def _follow_ends(me: RunContext, queue: QueueServer, *, is_restored: bool) -> None:
    """Notify the queue when an attempt of another worker ends, and when a new attempt follows it.

    A restored queue first waits to learn which of its closed producers have been restarted. Otherwise it
    could tell its consumers that iteration has ended while a restarted producer still has items to put.
    """
    marks = me.link.watermarks

    def ended(worker: str, attempt: int) -> None:
        is_well = marks.get(f"{SUCCEEDED}{worker}") == attempt
        is_over = marks.get(f"{OVER}{worker}") == attempt > marks.get(f"{RESTARTED}{worker}")
        queue.worker_ended(worker, attempt, is_well=is_well, is_over=is_over)

    def is_told() -> bool:
        # The launcher reports the end of this worker's own previous attempt together with the ends of all
        # other workers' attempts. So if the one has come, the others have, too.
        return me.link.has_ended(me.name, me.attempt - 1) or me.stop.event.is_set()

    marks.on_growth(RESTARTED, queue.worker_restarted)
    me.link.watch_ends(ended)
    if is_restored:
        marks.wait_for(is_told, _TOLD_WITHIN_S)
        for worker in marks.names(ENDED, 1):
            ended(worker, marks.get(f"{ENDED}{worker}"))
