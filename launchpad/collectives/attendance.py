"""Attendance: a rank's session at the rendezvous, from joining to leaving."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any

from launchpad.collectives.generation import STOP_S, Generation
from launchpad.collectives.membership import (
    Broken,
    Changed,
    Event,
    Finished,
    Formed,
    Lost,
    RankReturned,
)
from launchpad.courier import CourierError, fork
from launchpad.courier.client.stream import Stream
from launchpad.courier.interruptions import is_interruption
from launchpad.courier.own_threads import OwnThread
from launchpad.errors import CollectiveMismatch, PeerFailed
from launchpad.runtime import context
from launchpad.services.inbox import Inbox

STOPPED = "was asked to stop"


class Attendance:
    """A rank's session at the rendezvous. It begins when the object is made, and `leave` ends it.

    Args:
        client: The client of the rendezvous.
        replica: The number of this replica in the group.
        label: The label of the group.
    """

    def __init__(self, client: Any, replica: int, label: str) -> None:
        self._me = context.current()
        self._client = client
        self._replica = replica
        self._label = label
        self._key = os.urandom(8).hex()
        self._formed = Inbox[str, Generation | None]()
        self._generation: Generation | None = None
        self._has_left = False
        me = self._me
        with me.stop.interruption.forbidden():
            host = socket.gethostname()
            self._stream: Stream = client.attend(
                self._key, replica, me.name, me.attempt, host, me.link.policy.min_replicas
            )
            context.inherit()
            self._thread = OwnThread(target=self._listen, name=f"collective-{me.name}")
            self._thread.start()
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """Make the session inactive in a forked child. The parent takes part, even after the child ends."""
        self._has_left = True

    def wait_formed(self, timeout_s: float) -> Generation | None:
        """Wait for a generation with this rank, and return it. Return None if no more will be formed.

        Raises:
            TimeoutError: other ranks have not come. The message names them.
            PeerFailed: the rendezvous is lost.
            Stopped: the program stops.
        """
        try:
            return self._formed.take("formed", timeout_s)
        except TimeoutError as error:
            if is_interruption(error):
                raise
            absent = ", ".join(f"{self._label}-{replica}" for replica in self._client.absent())
            raise TimeoutError(
                f"{self._me.name} waited for the others of collective {self._label!r} for {timeout_s:g} s;"
                f" absent: {absent or 'none now'}"
            ) from None

    def leave(self, why: str, *, has_returned: bool = False) -> None:
        """End the session, and report why. A second call does nothing."""
        if self._has_left:
            return
        self._has_left = True
        # If this call fails, the rendezvous still notices the end of the stream.
        with contextlib.suppress(CourierError):
            self._client.with_options(timeout_s=STOP_S).leave(self._key, why, has_returned)
        self._stream.close()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    def abandon(self) -> None:
        """End the session without a report, as if this worker had died."""
        self._has_left = True
        self._stream.close()

    def _report(self, event: Event) -> None:
        # If this call fails, the other ranks still notice the end of this rank.
        with contextlib.suppress(CourierError):
            self._client.with_options(timeout_s=STOP_S).report(event)

    def _listen(self) -> None:
        """Take events, in a separate thread. When the stream ends, for any reason, end the generation."""
        error: BaseException | None = None
        try:
            for event in self._stream:
                self._take(event)
        except BaseException as end_error:
            # Any error counts, including those from closing the stream and from the stop of a server.
            error = end_error
        if self._has_left:
            return
        if self._me.stop.event.is_set():
            if self._generation is not None:
                self._generation.note_stop()
            return
        text = f"the rendezvous of {self._label!r} is lost: {error or 'its stream has ended'!r}"
        peer_failed = PeerFailed(text, f"{self._label}.rendezvous-0")
        self._formed.close(peer_failed)
        if self._generation is not None:
            self._generation.end(peer_failed)

    def _take(self, event: Event) -> None:
        if isinstance(event, Finished):
            self._formed.put("formed", None)
            return
        if isinstance(event, Formed):
            rank = next(m.rank for m in event.members if m.replica == self._replica)
            generation = Generation(
                event.generation, event.members, rank, self._label, self._report
            )
            self._generation = generation
            self._formed.put("formed", generation)
            return
        generation_now = self._generation
        if generation_now is None or generation_now.number != event.generation:
            return
        match event:
            case RankReturned(member=member):
                generation_now.note_returned(member.rank)
            case Lost(member=member, why=why, has_returned=has_returned):
                if why == STOPPED and self._me.stop.event.wait(STOP_S):
                    generation_now.note_stop()
                    return
                generation_now.end(generation_now.lost(member, why, has_returned=has_returned))
            case Changed(worker=worker):
                generation_now.end(generation_now.changed(worker))
            case Broken(text=text, is_late=is_late):
                generation_now.end(TimeoutError(text) if is_late else CollectiveMismatch(text))
