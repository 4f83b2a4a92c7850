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
from launchpad.events import Ended, WorkerNote
from launchpad.launch.backends.processes import (
    environment,
    exit_status,
    interpreter,
    messages,
    os_process,
    worker_specs,
)
from launchpad.launch.backends.processes.messages import AddressesChanged, Phase
from launchpad.launch.backends.processes.worker_specs import LaunchSpec
from launchpad.launch.logs.log_writer import ProcessLog
from launchpad.launch.logs.rotation import first_part
from launchpad.launch.plan import WorkerPlan
from launchpad.launch.planning import absl_flags
from launchpad.launch.supervision.commands import AnnounceGone, StopWorker
from launchpad.launch.worker.worker import Worker, context_of

_INTERRUPT = signal.SIGURG
"""Ignored by default and hardly used by anyone, so that one that comes too early or too late does nothing."""

_STACKS = signal.SIGQUIT
"""As in other languages: a process that gets it prints the stacks of its threads, and goes on."""

_READ_AT_START = ("PYTHON", "LD_", "DYLD_", "GLIBC_", "MALLOC_", "LANG", "LC_", "TZ")
"""What the interpreter, the loader and libc look at once, when the process begins."""

_EXIT_S = 5.0
"""How long a worker's threads and the functions it registered with atexit may take, all together."""


@dataclass(frozen=True)
class SpawnArgs:
    """What one process is made for, and the descriptors it keeps."""

    control: int
    file: int
    index_length: int
    worker: str
    attempt: int


def mark(worker: str, attempt: int) -> str:
    """What `kernel.MARK` says in all that this attempt starts."""
    return f"{worker}.{attempt}"


def forked(spawn_args: SpawnArgs, spec: LaunchSpec, open_files: os_process.OpenFiles) -> NoReturn:
    """What the host's copy does after the fork."""
    try:
        _detach_from_forkserver(spawn_args, spec, open_files)
        if _must_exec(spec.workers[spawn_args.worker]):
            _exec(spawn_args, spec)
    except OSError as error:
        _report_not_started(spawn_args, error)
        os._exit(1)
    _run_and_exit(spawn_args, spec)


def main(*raw_args: Any) -> NoReturn:
    """What a new interpreter does after the exec."""
    spawn_args = SpawnArgs(*raw_args)
    _run_and_exit(spawn_args, worker_specs.load(spawn_args.file, spawn_args.index_length))


def _detach_from_forkserver(
    spawn_args: SpawnArgs, spec: LaunchSpec, open_files: os_process.OpenFiles
) -> None:
    """Turns the host's copy into a process of its own."""
    os_process.set_process_group(0)
    os_process.name_process(spawn_args.worker)
    os_process.reset_sigchld()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = first_part(spec.logs.path(spawn_args.worker, spawn_args.attempt))
    os.dup2(log, 1)
    os.dup2(log, 2)
    os_process.close_all_but({spawn_args.control, spawn_args.file, *spec.claim})
    os_process.restore_open_files(open_files)
    gc.enable()


def _must_exec(plan: WorkerPlan) -> bool:
    return bool(plan.python) or any(name.startswith(_READ_AT_START) for name in plan.env)


def _exec(spawn_args: SpawnArgs, spec: LaunchSpec) -> NoReturn:
    for fd in (spawn_args.control, spawn_args.file, *spec.claim):
        os.set_inheritable(fd, True)
    plan = spec.workers[spawn_args.worker]
    command = interpreter.command(
        "worker_process:main", *vars(spawn_args).values(), python=plan.python
    )
    os.execvpe(command[0], command, {**os.environ, **_environment(plan, spec)})


def _environment(plan: WorkerPlan, spec: LaunchSpec) -> dict[str, str]:
    return environment.environment(plan, spec.logs.directory.name, len(spec.workers))


def _report_not_started(spawn_args: SpawnArgs, error: Exception) -> None:
    attempt = exit_status.ProcessAttempt(spawn_args.worker, spawn_args.attempt, os.getpid())
    messages.send(spawn_args.control, Ended(exit_status.not_started(attempt, error)))


def _run_and_exit(spawn_args: SpawnArgs, spec: LaunchSpec) -> NoReturn:
    """Never returns into the host's frames below, whatever happens."""
    code = 1
    try:
        code = _run_worker(spawn_args, spec)
    except Exception as error:  # before the worker's own life: that is caught in Worker.main
        _report_not_started(spawn_args, error)
        traceback.print_exc()
    finally:
        os._exit(code)


def _run_worker(spawn_args: SpawnArgs, spec: LaunchSpec) -> int:
    """One attempt; the exit code."""
    plan = worker_specs.plan_of(spawn_args.file, spawn_args.index_length, spec, spawn_args.worker)
    host = _ForkServerClient(spawn_args.control)
    log = ProcessLog(
        spec.logs.path(spawn_args.worker, spawn_args.attempt),
        spec.rotation,
        lambda text: host.send(WorkerNote(spawn_args.worker, text)),
    )
    _prepare(plan, spec, log)
    os.environ[os_process.MARK] = mark(spawn_args.worker, spawn_args.attempt)
    places = dict(spec.endpoints)
    me = context_of(
        plan,
        spec.program,
        spec.launch_type,
        spawn_args.attempt,
        places,
        host.send,
        spec.states[spawn_args.worker],
        spec.can_move,
        spec.listens_at,
        spec.known_as,
    )
    worker = Worker(
        plan,
        me,
        host.send,
        _MainThreadInterrupt(),
        lambda phase: host.send(Phase(phase)),
        lambda: environment.limited(plan),
    )
    context.enter_process(me)
    threading.Thread(
        target=host.listen, args=(worker, me, places), name="launchpad-control", daemon=True
    ).start()
    ended = worker.main()
    log.report_trouble()
    host.send(Ended(ended))
    if ended.traceback:
        log.print(ended.traceback)
    _end_like_an_interpreter()
    return 1 if ended.is_failure else 0


def _prepare(plan: WorkerPlan, spec: LaunchSpec, log: ProcessLog) -> None:
    """The process as user code expects to find it."""
    os.environ.update(_environment(plan, spec))
    environment.bind(plan)
    sys.argv = [*spec.argv, *plan.args]
    absl_flags.expect(spec.flags, plan.args)
    sys.modules["__main__"] = types.ModuleType("__main__")
    log.watch()
    faulthandler.enable(log.fd)
    faulthandler.register(_STACKS, log.fd)
    with contextlib.suppress(OSError):  # a launcher that keeps no such files
        stacks = os.open(spec.stacks[plan.name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(os_process.SHOW_STACKS, stacks)
    for key in spec.keys:
        keyring.add(*key)


class _ForkServerClient:
    """The host, as seen from a worker."""

    def __init__(self, control: int) -> None:
        self._control = control
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Tells the launcher, through the host; from any thread."""
        with self._lock, contextlib.suppress(OSError):  # if it is gone we are about to be
            messages.send(self._control, message)

    def listen(self, worker: Worker, me: context.RunContext, places: dict[str, str]) -> None:
        """Does as the host says, for as long as it lives; takes what this process has started along."""
        for message in messages.receive(self._control):
            if isinstance(message, StopWorker):
                threading.Thread(
                    target=worker.ask_to_stop,
                    args=(message.restarts,),
                    name="launchpad-stop",
                    daemon=True,
                ).start()
            elif isinstance(message, AnnounceGone):
                me.mark_gone(message.worker, message.why)
            elif isinstance(message, AddressesChanged):
                places.update(message.places)
        os_process.kill_descendants()
        os_process.kill_group(os.getpid())


class _MainThreadInterrupt:
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
