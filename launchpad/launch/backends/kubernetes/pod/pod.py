"""Pod: what runs in a worker's container. It starts the worker's process, and speaks for it.

    launcher ◀── log, termination message ── pod ══ lifeline ══ keeper ── host ── worker
             ─── SIGTERM, annotation ──────▶

The worker is a process of its own, as in `local_mp`: so it can be killed like any other, and who waits for it
says how it ended, hands on its state and writes its stacks. When it has ended the container ends, too, with
an exit code that says whether that was a failure.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import signal
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from launchpad import outcome
from launchpad.courier import keyring
from launchpad.launch.backend import Born, Ended, Noted, Ready
from launchpad.launch.backends.kubernetes.objects.grace import grace_s
from launchpad.launch.backends.kubernetes.objects.layout import GIVEN, READY_PORT, STATE, WRITABLE
from launchpad.launch.backends.kubernetes.pod.orders import Orders
from launchpad.launch.backends.kubernetes.pod.readiness import Readiness
from launchpad.launch.backends.kubernetes.post import baggage, letters, parcels, shared
from launchpad.launch.backends.kubernetes.post.letters import Stacks, Wishes
from launchpad.launch.backends.processes.backend import ProcessWorkers, start_host
from launchpad.launch.backends.processes.briefing import Abroad
from launchpad.launch.gpus.visible import VISIBLE
from launchpad.launch.logs.tail import Tail
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.run_directory import RunDirectory
from launchpad.outcome import Outcome
from launchpad.resources import in_words

LAST_WORDS = Path("/dev/termination-log")

_LOOK_S = 0.05


class Pod:
    """One attempt of one worker.

    Args:
      given: Where what was mounted is.
      writable: Where it may write.
    """

    def __init__(self, attempt: int, given: Path, writable: Path, state: Path) -> None:
        self._attempt, self._given, self._writable = attempt, given, writable
        self._state = state
        self._heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._orders, self._wishes = Orders(given), Wishes()
        self._kill_at: float | None = None
        self._is_asked = False
        self._pid = 0
        self._readiness = Readiness()

    def live(self) -> Outcome:
        """Runs the worker to its end."""
        signal.signal(signal.SIGTERM, lambda *_: self._heard.put(signal.SIGTERM))
        ours = shared.load(self._given)
        self._unpack_project()
        self._take_over_state()
        asked = shared.worker(self._given)
        plan = self._settled(asked)
        self._name, self._grace_s = plan.name, grace_s(plan, ours.grace_s)
        run = RunDirectory.create(ours.program, plan.endpoints)
        keyring.add(run.scope, ours.keys.token)
        self._workers = self._start(ours, plan, run, asked.endpoints)
        self._tail = Tail(run.log(plan.name, self._attempt))
        try:
            run.make_runtime()
            self._workers.start(plan.name, self._attempt)
            self._workers.place({a: e for a, e in ours.places.items() if a not in plan.endpoints})
            return self._watch()
        finally:
            self._workers.close()

    def _start(
        self,
        ours: shared.Shared,
        plan: WorkerPlan,
        run: RunDirectory,
        known_as: Mapping[str, str],
    ) -> ProcessWorkers:
        abroad = Abroad(
            listens_at="",
            token=ours.keys.token,
            credentials=ours.keys.credentials,
            argv=ours.origin.argv,
            flags=ours.origin.flags,
            state=str(self._state),
            known_as=known_as,
        )
        whole = LaunchPlan(ours.program, ours.launch_type, (plan,))
        return start_host(whole, run, self._heard.put, abroad, forks=threading.active_count() == 1)

    def _settled(self, plan: WorkerPlan) -> WorkerPlan:
        """The plan as it holds here: servers listen to everybody, GPUs are those of the container."""
        endpoints = {
            name: f"tcp:0.0.0.0:{there.rpartition(':')[2]}" if there.startswith("tcp:") else there
            for name, there in plan.endpoints.items()
        }
        return replace(plan, endpoints=endpoints, gpus=_gpus(plan), cpus=())

    def _unpack_project(self) -> None:
        is_given = (self._given / parcels.file_name("code", 0)).exists()
        code = parcels.unpacked(self._given, "code") if is_given else b""
        if not code:
            return
        folder = self._writable / "code"
        with zipfile.ZipFile(io.BytesIO(code)) as packed:
            packed.extractall(folder)
        sys.path.insert(0, str(folder))

    # While it runs.

    def _watch(self) -> Outcome:
        while True:
            self._print_log()
            self._obey()
            self._readiness.answer()
            for heard in self._all_heard():
                if isinstance(heard, Ended):
                    return self._at_end(heard)
                self._on(heard)

    def _at_end(self, ended: Ended) -> Outcome:
        while self._tail.has_more():
            self._print_log()
        if rest := self._tail.remainder():
            _print([letters.escaped(rest) + b"\n"])
        self._hand_on_state()
        _print([letters.written(ended)])
        return ended.outcome

    def _hand_on_state(self) -> None:
        """For the next attempt, if there is one."""
        if not self._wishes.carries:
            return
        try:
            size = baggage.size_of(self._state)
            content = baggage.packed(self._state) if size <= baggage.MOST_BYTES else b""
        except OSError as error:
            self._note(f"its state directory cannot be handed on to its next attempt: {error}")
            return
        if size > baggage.MOST_BYTES:
            self._note(
                f"its state directory has {in_words(size)}, and no more than {in_words(baggage.MOST_BYTES)}"
                f" are sent to its next attempt; mount a volume at {STATE} by pod_patch"
            )
        _print([letters.written(piece) for piece in letters.baggage_of(self._name, content)])

    def _note(self, text: str) -> None:
        _print([letters.written(Noted(self._name, text))])

    def _take_over_state(self) -> None:
        """What the attempt before has left, unless a volume has it already."""
        is_given = (self._given / parcels.file_name("state", 0)).exists()
        if is_given and baggage.is_empty(self._state):
            baggage.unpack(parcels.unpacked(self._given, "state"), self._state)

    def _all_heard(self) -> Iterable[Any]:
        with contextlib.suppress(queue.Empty):
            yield self._heard.get(timeout=_LOOK_S)
            while True:
                yield self._heard.get_nowait()

    def _on(self, heard: Any) -> None:
        if heard is signal.SIGTERM:
            self._ask(restarts=False)
            return
        if isinstance(heard, Ready):
            self._tell_ready()
        if isinstance(heard, Born):
            self._pid = heard.pid
        else:  # a pid means nothing elsewhere
            _print([letters.written(heard)])

    def _tell_ready(self) -> None:
        try:
            self._readiness.tell()
        except OSError as error:
            self._note(f"the cluster will not call it ready: port {READY_PORT}: {error}")

    def _ask(self, restarts: bool) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._workers.ask(self._name, restarts=restarts)
            self._kill_at = time.monotonic() + self._grace_s

    def _obey(self) -> None:
        """Does what the launcher has come to wish; and what was to be done by now."""
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._kill_at = None
            self._workers.kill(self._name)
        wishes, before = self._orders.wishes(), self._wishes
        self._wishes = wishes if self._pid else replace(wishes, crash=False)  # it is still to come
        for worker in {*wishes.gone, *before.gone}:
            if wishes.gone.get(worker, "") != before.gone.get(worker, ""):
                self._workers.tell_gone(worker, wishes.gone.get(worker, ""))
        if wishes.restarts:
            self._ask(restarts=True)
        if wishes.kill and not before.kill:
            self._workers.kill(self._name)
        if wishes.crash and not before.crash and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        if wishes.stacks > before.stacks:
            text = self._workers.stacks(self._name)
            _print([letters.written(Stacks(self._name, wishes.stacks, text))])

    def _print_log(self) -> None:
        while lines := self._tail.lines():
            _print([letters.escaped(line) + b"\n" for line in lines])


def _gpus(plan: WorkerPlan) -> tuple[str, ...]:
    """As the device plugin names them; else by number: there are no others in this container."""
    if plan.resources.gpus and (visible := os.environ.get(VISIBLE)):
        return tuple(visible.split(","))
    return tuple(str(i) for i in range(int(plan.resources.gpus)))


def main(attempt: int) -> NoReturn:
    """One attempt: prints, leaves its last words, and exits."""
    given, writable = Path(GIVEN), Path(WRITABLE)
    settle_in(writable)
    try:
        differs = shared.differences(given)
        if differs:
            ended = _not_started(attempt, shared.UNLIKE.format(differs), shared.ALIKE)
        else:
            ended = Pod(attempt, given, writable, Path(STATE)).live()
    except Exception as error:
        ended = _not_started(attempt, f"{type(error).__name__}: {error}", "")
    with contextlib.suppress(OSError):
        LAST_WORDS.write_bytes(letters.last_words(ended))
    sys.stdout.flush()
    os._exit(outcome.exit_status(ended) if ended.is_failure else 0)


def settle_in(writable: Path) -> None:
    """Has everything written where it may be."""
    os.environ["TMPDIR"] = str(writable)
    if not os.access(os.path.expanduser("~"), os.W_OK):
        os.environ["HOME"] = str(writable)


def _not_started(attempt: int, cause: str, hint: str) -> Outcome:
    ended = Outcome(
        "", outcome.FAILED, "start", attempt, cause, hint=hint, host=socket.gethostname()
    )
    _print([letters.written(Ended(ended))])
    return ended


def _print(lines: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        left = memoryview(b"".join(lines))
        while left:
            left = left[os.write(1, left) :]
