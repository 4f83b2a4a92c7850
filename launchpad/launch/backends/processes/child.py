"""A worker's process, from its birth to its exit.

    fork ── own group, log, descriptors ──┬────────────────────────────────▶ live
                                          └── exec: another interpreter, ──▶ live
                                              or an environment it is born with

    main thread    Worker.main: import, init, run, stop ──▶ says its outcome ──▶ threads, atexit ──▶ _exit
    control thread host's messages: asked to stop, another one failed; their end: the host is dead, so die

The control thread never runs code of the user's, so that it always sees the host die.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
import types
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from launchpad import context
from launchpad.courier import keyring
from launchpad.errors import Stopped
from launchpad.launch import flag_values
from launchpad.launch.backend import Noted
from launchpad.launch.backends.processes import (
    briefing,
    endings,
    interpreter,
    kernel,
    messages,
    surroundings,
)
from launchpad.launch.backends.processes.briefing import Briefing
from launchpad.launch.backends.processes.messages import Ask, Over, Phase, Placed
from launchpad.launch.logs.process_log import ProcessLog
from launchpad.launch.logs.rotation import first_part
from launchpad.launch.plan import WorkerPlan
from launchpad.launch.worker import Worker, context_of

_INTERRUPT = signal.SIGURG
"""Ignored by default and hardly used by anyone, so that one that comes too early or too late does nothing."""

_STACKS = signal.SIGQUIT
"""As in other languages: a process that gets it prints the stacks of its threads, and goes on."""

_READ_AT_BIRTH = ("PYTHON", "LD_", "DYLD_", "GLIBC_", "MALLOC_", "LANG", "LC_", "TZ")
"""What the interpreter, the loader and libc look at once, when the process begins."""

_EXIT_S = 5.0
"""How long a worker's threads and the functions it registered with atexit may take, all together."""


@dataclass(frozen=True)
class Birth:
    """What one process is made for, and the descriptors it keeps."""

    control: int
    file: int
    index_length: int
    worker: str
    attempt: int


def mark(worker: str, attempt: int) -> str:
    """What `kernel.MARK` says in all that this attempt starts."""
    return f"{worker}.{attempt}"


def forked(birth: Birth, given: Briefing, open_files: kernel.OpenFiles) -> NoReturn:
    """What the host's copy does after the fork."""
    try:
        _leave_host(birth, given, open_files)
        if _must_exec(given.workers[birth.worker]):
            _exec(birth, given)
    except OSError as error:
        _say_not_started(birth, error)
        os._exit(1)
    _live_and_exit(birth, given)


def main(*birth: Any) -> NoReturn:
    """What a new interpreter does after the exec."""
    born = Birth(*birth)
    _live_and_exit(born, briefing.load(born.file, born.index_length))


def _leave_host(birth: Birth, given: Briefing, open_files: kernel.OpenFiles) -> None:
    """Turns the host's copy into a process of its own."""
    kernel.own_group(0)
    kernel.name_process(birth.worker)
    kernel.forget_children()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = first_part(given.logs.path(birth.worker, birth.attempt))
    os.dup2(log, 1)
    os.dup2(log, 2)
    kernel.close_all_but({birth.control, birth.file, *given.claim})
    kernel.restore_open_files(open_files)
    gc.enable()


def _must_exec(plan: WorkerPlan) -> bool:
    return bool(plan.python) or any(name.startswith(_READ_AT_BIRTH) for name in plan.env)


def _exec(birth: Birth, given: Briefing) -> NoReturn:
    for fd in (birth.control, birth.file, *given.claim):
        os.set_inheritable(fd, True)
    plan = given.workers[birth.worker]
    command = interpreter.command("child:main", *vars(birth).values(), python=plan.python)
    os.execvpe(command[0], command, {**os.environ, **_environment(plan, given)})


def _environment(plan: WorkerPlan, given: Briefing) -> dict[str, str]:
    return surroundings.environment(plan, given.logs.directory.name, len(given.workers))


def _say_not_started(birth: Birth, error: Exception) -> None:
    attempt = endings.Attempt(birth.worker, birth.attempt, os.getpid())
    messages.send(birth.control, endings.not_started(attempt, error))


def _live_and_exit(birth: Birth, given: Briefing) -> NoReturn:
    """Never returns into the host's frames below, whatever happens."""
    code = 1
    try:
        code = _live(birth, given)
    except Exception as error:  # before the worker's own life: that is caught in Worker.main
        _say_not_started(birth, error)
        traceback.print_exc()
    finally:
        os._exit(code)


def _live(birth: Birth, given: Briefing) -> int:
    """One attempt; the exit code."""
    plan = briefing.plan_of(birth.file, birth.index_length, given, birth.worker)
    host = _Host(birth.control)
    log = ProcessLog(
        given.logs.path(birth.worker, birth.attempt),
        given.rotation,
        lambda text: host.say(Noted(birth.worker, text)),
    )
    _furnish(plan, given, log)
    os.environ[kernel.MARK] = mark(birth.worker, birth.attempt)
    places = dict(given.endpoints)
    me = context_of(
        plan,
        given.program,
        given.launch_type,
        birth.attempt,
        places,
        host.say,
        given.states[birth.worker],
        given.abroad is not None,
        *((given.abroad.listens_at, given.abroad.known_as) if given.abroad is not None else ()),
    )
    worker = Worker(
        plan,
        me,
        host.say,
        _Interruption(),
        lambda phase: host.say(Phase(phase)),
        lambda: surroundings.limited(plan),
    )
    context.enter_process(me)
    threading.Thread(
        target=host.listen, args=(worker, me, places), name="launchpad-control", daemon=True
    ).start()
    ended = worker.main()
    log.tell_of_trouble()
    host.say(ended)
    if ended.traceback:
        log.print(ended.traceback)
    _end_like_an_interpreter()
    return 1 if ended.is_failure else 0


def _furnish(plan: WorkerPlan, given: Briefing, log: ProcessLog) -> None:
    """The process as user code expects to find it."""
    os.environ.update(_environment(plan, given))
    surroundings.bind(plan)
    sys.argv = [*given.argv, *plan.args]
    flag_values.expect(given.flags, plan.args)
    sys.modules["__main__"] = types.ModuleType("__main__")
    log.watch()
    faulthandler.enable(log.fd)
    faulthandler.register(_STACKS, log.fd)
    with contextlib.suppress(OSError):  # a launcher that keeps no such files
        stacks = os.open(given.stacks[plan.name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(kernel.SHOW_STACKS, stacks)
    for key in given.keys:
        keyring.add(*key)


class _Host:
    """The host, as seen from a worker."""

    def __init__(self, control: int) -> None:
        self._control = control
        self._lock = threading.Lock()

    def say(self, message: object) -> None:
        """Tells the launcher, through the host; from any thread."""
        with self._lock, contextlib.suppress(OSError):  # if it is gone we are about to be
            messages.send(self._control, message)

    def listen(self, worker: Worker, me: context.RunContext, places: dict[str, str]) -> None:
        """Does as the host says, for as long as it lives; takes what this process has started along."""
        for message in messages.receive(self._control):
            if isinstance(message, Ask):
                threading.Thread(
                    target=worker.ask_to_stop,
                    args=(message.restarts,),
                    name="launchpad-stop",
                    daemon=True,
                ).start()
            elif isinstance(message, Over):
                me.mark_gone(message.worker, message.why)
            elif isinstance(message, Placed):
                places.update(message.places)
        kernel.kill_descendants()
        kernel.kill_group(os.getpid())


class _Interruption:
    """Called, it raises `Stopped` in the main thread, also in one that sleeps, waits or reads."""

    def __init__(self) -> None:
        self._is_due = False
        signal.signal(_INTERRUPT, self._on_signal)

    def __call__(self) -> None:
        self._is_due = True
        signal.pthread_kill(cast(int, threading.main_thread().ident), _INTERRUPT)

    def _on_signal(self, number: int, frame: object) -> None:
        if self._is_due:
            self._is_due = False
            raise Stopped


def _end_like_an_interpreter() -> None:
    """Waits for user threads, then calls exit functions; past their time all stacks are printed."""
    faulthandler.dump_traceback_later(_EXIT_S, exit=True, file=2)
    for end in (cast(Any, threading)._shutdown, atexit._run_exitfuncs, _flush):
        with contextlib.suppress(BaseException):
            end()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
