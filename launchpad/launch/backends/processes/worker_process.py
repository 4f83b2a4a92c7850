"""A worker's process, from the fork to its exit.

    fork ── own group, log, descriptors ──┬────────────────────────────────▶ run
                                          └── exec: another interpreter, ──▶ run
                                              or variables it reads at start

    main thread    Worker.main: import, init, run, stop ──▶ reports its outcome ──▶ threads, atexit ──▶ _exit
    control thread receives messages: stop, another worker failed; at their end the forkserver is dead: exit

The control thread never runs the user's code, so it always notices the forkserver's end.

    variables      CUDA_VISIBLE_DEVICES    the GPUs that the worker was given, and no others; empty: no GPU
                   CUDA_DEVICE_ORDER       PCI_BUS_ID, so that CUDA numbers the GPUs as launchpad does
                   OMP_NUM_THREADS, …      as many threads as the worker may use CPUs, unless already set
    limits         CPU affinity            if the worker asks for a whole number of CPUs
                   RLIMIT_DATA             its private, writable memory; not its address space, of which CUDA
                                           and other libraries reserve far more than they use

All of these are set before the worker imports any of the user's code, except preloaded modules.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import resource
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, cast

from launchpad.courier import fork, formatting, keyring, own_threads
from launchpad.courier.own_threads import OwnThread
from launchpad.launch.backends.processes import (
    exit_status,
    messages,
    os_process,
)
from launchpad.launch.backends.processes.messages import Awaits, Phase
from launchpad.launch.backends.processes.worker_specs import LaunchSpec, SpecFile
from launchpad.launch.devices import cpus
from launchpad.launch.devices.device import VISIBLE
from launchpad.launch.logs.log_writer import ProcessLog
from launchpad.launch.logs.rotation import first_part
from launchpad.launch.plan import WorkerPlan
from launchpad.launch.planning import absl_flags
from launchpad.launch.worker import interpreter_exit
from launchpad.launch.worker.worker import Worker, context_of
from launchpad.runtime import context, random_numbers
from launchpad.runtime.commands import AddressesChanged, StartWorker
from launchpad.runtime.events import Ended, Returned, WorkerNote
from launchpad.runtime.interrupt import RaisedFromOutside, end_loop, running_loop

_INTERRUPT = signal.SIGURG
"""The signal that interrupts the main thread. By default it is ignored, so it does nothing when it comes too
early or too late. Hardly any program uses it."""

_STACKS = signal.SIGQUIT
"""The signal at which a process prints the stacks of its threads and goes on, as in other languages."""

_READ_AT_START = ("PYTHON", "LD_", "DYLD_", "GLIBC_", "MALLOC_", "LANG", "LC_", "TZ")
"""Prefixes of variables that the interpreter, the loader and libc read only once, when a process begins."""

_ATTACHED = "local_mp"
"""The launch type whose workers a user can debug with `launchpad attach`."""

_LARGE_RESULT = 1 << 20
"""Size in bytes above which a result goes through a file instead of through the forkserver."""

_THREADS = f"{cpus.OPENMP_THREADS} MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS".split()


def mark(worker: str, attempt: int) -> str:
    """Return the value of `os_process.MARK` in all processes that this attempt starts."""
    return f"{worker}.{attempt}"


def become_worker(
    specs: SpecFile,
    start: StartWorker,
    control: int,
    open_files: tuple[int, int],
    sigchld_handler: Any,
) -> NoReturn:
    """Turn the forkserver's copy into a process of its own, and run the worker in it.

    Args:
        control: The descriptor of the connection to the forkserver.
        open_files, sigchld_handler: Settings that the forkserver has changed for itself, for the worker to
            restore.
    """
    launch = specs.launch
    plan = launch.workers[start.worker].plan
    inherited = control, specs.fd, *launch.claim
    try:
        os_process.set_process_group(0)
        os_process.name_process(start.worker)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, sigchld_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = first_part(launch.logs.path(start.worker, start.attempt))
        os.dup2(log, 1)
        os.dup2(log, 2)
        os_process.close_all_but(set(inherited))
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
        gc.enable()
        if plan.process.python or any(name.startswith(_READ_AT_START) for name in plan.process.env):
            for fd in inherited:
                os.set_inheritable(fd, True)
            command = os_process.python_command(
                "worker_process:main",
                specs.fd,
                specs.index_length,
                start.worker,
                start.attempt,
                control,
                python=plan.process.python,
                flags=launch.launcher.interpreter.flags,
            )
            variables = environment(plan, launch.logs.directory.name, len(launch.workers))
            os.execvpe(command[0], command, {**os.environ, **variables})
    except OSError as error:
        _report_not_started(start, control, error)
        os._exit(1)
    _run_and_exit(specs, start, control, is_fork=True)


def main(file: int, index_length: int, worker: str, attempt: int, control: int) -> NoReturn:
    """Run the worker in a new interpreter, after the exec."""
    specs = SpecFile(file, index_length)
    _run_and_exit(specs, StartWorker(worker, attempt), control, is_fork=False)


def environment(plan: WorkerPlan, run_id: str, num_workers: int) -> dict[str, str]:
    """Return the variables to set for a worker besides those that it inherits. Its plan's variables win.

    Args:
        run_id: The run that holds its GPUs.
        num_workers: The number of workers that share this host's CPUs.
    """
    threads = cpus.number_of_threads(plan.resources.cpus, num_workers)
    hints = {name: str(threads) for name in _THREADS if name not in os.environ}
    gpus = {VISIBLE: ",".join(plan.gpus)}
    if plan.gpus:
        from launchpad.launch.rundir import claims

        gpus |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **claims.worker_environment(run_id)}
    return {**hints, **gpus, **plan.process.env}


def _report_not_started(start: StartWorker, control: int, error: Exception) -> None:
    end = exit_status.not_started(start.worker, start.attempt, error, os.getpid())
    messages.send(control, Ended(end))


def _run_and_exit(specs: SpecFile, start: StartWorker, control: int, *, is_fork: bool) -> NoReturn:
    """Run the worker, and never return into the forkserver's frames below, whatever happens."""
    code = 1
    try:
        code = _run_worker(specs, start, control, is_fork)
    except Exception as error:
        # The worker has not begun: `Worker.main` catches its own errors.
        _report_not_started(start, control, error)
        traceback.print_exc()
    finally:
        os._exit(code)


def _run_worker(specs: SpecFile, start: StartWorker, control: int, is_fork: bool) -> int:
    """Run one attempt, and return the exit code."""
    launch = specs.launch
    spec = specs.worker(start.worker)
    plan = spec.plan
    results = launch.logs.directory / f"{start.worker}.result"
    forkserver = _ForkServerClient(control, results)
    log = ProcessLog(
        launch.logs.path(start.worker, start.attempt),
        launch.rotation,
        lambda text: forkserver.send(WorkerNote(start.worker, text)),
    )
    _prepare(plan, launch, log, is_fork)
    os.environ[os_process.MARK] = mark(start.worker, start.attempt)
    places = dict(spec.endpoints)
    me = context_of(replace(spec, endpoints=places), start.attempt, forkserver.send)
    main_thread = _MainThread()
    if os_process.ignores_sigterm():
        # The worker's own processes must end at a SIGTERM, whether they are executed or only forked.
        signal.signal(signal.SIGTERM, os_process.on_ignored_signal)
        fork.call_in_child(main_thread, lambda _: os_process.stop_ignoring_sigterm())
    worker = Worker(
        plan,
        me,
        forkserver.send,
        main_thread.interrupt,
        lambda phase: forkserver.send(Phase(phase)),
        lambda: _limited_memory(plan),
        call_in_main=main_thread.call,
    )
    context.enter_process(me)
    if sys.breakpointhook is sys.__breakpointhook__ and not os.environ.get("PYTHONBREAKPOINT"):
        if spec.launch_type == _ATTACHED:
            sys.breakpointhook = lambda *_, **__: worker.debugger.stand_at(sys._getframe(1))
        else:
            sys.breakpointhook = _refuse_breakpoint
    random_numbers.seed_modules()
    OwnThread(target=forkserver.listen, args=(worker, places), name="launchpad-control").start()
    with own_threads.watched(worker.crash):
        end = worker.main()
    log.report_trouble()
    forkserver.send(Ended(end))
    if end.traceback:
        log.print(end.traceback)
    interpreter_exit.run_exit_steps(lambda awaited: forkserver.send(Awaits(awaited)))
    return 1 if end.is_failure else 0


def _prepare(plan: WorkerPlan, launch: LaunchSpec, log: ProcessLog, is_fork: bool) -> None:
    """Set up the process as the user's code expects it."""
    os.environ.update(environment(plan, launch.logs.directory.name, len(launch.workers)))
    if is_fork and launch.preload:
        threads = os.environ.get(cpus.OPENMP_THREADS, "")
        _after_fork(int(threads) if threads.isdigit() else launch.preload_threads)
    if plan.cpus:
        # A CPU may have been taken away since the plan was made.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, plan.cpus)
    sys.argv = [*launch.launcher.argv, *plan.process.args]
    absl_flags.expect(launch.launcher.flags, plan.process.args)
    launch.launcher.main.install()
    log.watch()
    launch.launcher.interpreter.apply()
    if sys.version_info >= (3, 14):
        # A report shows the last lines of the log. Lines of the C stack would displace Python's.
        faulthandler.enable(log.fd, c_stack=False)
    else:
        faulthandler.enable(log.fd)
    faulthandler.register(_STACKS, log.fd)
    # Some launchers keep no files for stacks.
    with contextlib.suppress(OSError):
        stacks = os.open(launch.stacks[plan.name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(os_process.SHOW_STACKS, stacks)
    for key in launch.keys:
        keyring.add(*key)


def _after_fork(threads: int) -> None:
    """Give this fork its own numbers of threads and random seeds, which preloaded modules fixed at import."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(threads)
    # From threadpoolctl 3.8 on, only the thread that set OpenBLAS' limit can change it, until that thread has
    # ended. Calls of other threads are silently ignored. The worker's own threads must be free to change it.
    openblas = threadpoolctl.OpenBLASController
    if hasattr(openblas, "clear_controlling_thread"):
        openblas.clear_controlling_thread()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def _refuse_breakpoint(*args: object, **kwargs: object) -> NoReturn:
    raise RuntimeError(
        "breakpoint() needs a terminal, and this worker has none. Launch with --lp_launch_type=local_mp,"
        " where it waits for `launchpad attach`, or with --lp_launch_type=local_mt; or set PYTHONBREAKPOINT"
        " to a debugger that listens on a socket."
    )


@contextlib.contextmanager
def _limited_memory(plan: WorkerPlan) -> Iterator[None]:
    """Limit the memory of the user's code in this context. launchpad's own code around it has no limit."""
    limit = plan.resources.memory_bytes
    if limit is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = [limit, *(most for most in before if most != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(allowed), before[1]))
    try:
        yield
    finally:
        # The user's code may have lowered the hard limit.
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, before)


class _ForkServerClient:
    """A worker's end of the connection to the forkserver."""

    def __init__(self, control: int, results: Path) -> None:
        self._control = control
        self._results = results
        # Held while a message is sent, because any thread may send one, and messages must not mix.
        self._lock = fork.free_in_child(threading.Lock())

    def send(self, message: object) -> None:
        """Send a message to the launcher, through the forkserver. May be called from any thread."""
        if isinstance(message, Returned) and message.size > _LARGE_RESULT:
            message = self._written(message)
        # The forkserver may be dead. Then this process is about to be ended, too.
        with self._lock, contextlib.suppress(OSError):
            messages.send(self._control, message)

    def _written(self, result: Returned) -> object:
        """Write a result into its file, and return the message to send instead of it."""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with open(os.open(self._results, flags, 0o600), "wb") as file:
                pickle.dump(result, file, protocol=5)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._results.unlink()
            size = formatting.size(result.size)
            why = f"{error.strerror} ({self._results})"
            error_text = f"{result.worker} returned {size}, which could not be written: {why}"
            return Returned(result.worker, result.attempt, error=error_text)
        return messages.ReturnedInFile(result.worker, result.attempt, str(self._results))

    def listen(self, worker: Worker, places: dict[str, str]) -> None:
        """Execute commands until the forkserver ends; then kill this process and all that it has started."""
        for command in messages.receive(self._control):
            if isinstance(command, AddressesChanged):
                places.update(command.places)
            else:
                worker.execute(command)
        os_process.kill_descendants()
        os_process.kill_group(os.getpid())


class _MainThread:
    """The main thread, which can be interrupted even while it sleeps, waits or reads."""

    def __init__(self) -> None:
        self._due: deque[Callable[[FrameType], object]] = deque()
        signal.signal(_INTERRUPT, self._on_signal)

    def call(self, function: Callable[[FrameType], object]) -> None:
        """Call a function in the main thread, with the frame that the main thread executes."""
        self._due.append(function)
        signal.pthread_kill(cast(int, threading.main_thread().ident), _INTERRUPT)

    def interrupt(self) -> None:
        """Raise `Stopped` in the main thread. If it runs an event loop, ask the loop to end instead."""

        def interrupt_there(frame: FrameType) -> None:
            loop = running_loop(threading.main_thread())
            if loop is None:
                raise RaisedFromOutside
            handler = signal.getsignal(signal.SIGTERM)
            if callable(handler) and handler is not os_process.on_ignored_signal:
                # Something handles this signal: a server, for example, which shuts down cleanly.
                signal.raise_signal(signal.SIGTERM)
                # Afterwards the server may raise the signal again, as if it had not been handled.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            else:
                end_loop(loop)

        self.call(interrupt_there)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        while self._due and frame is not None:
            self._due.popleft()(frame)
