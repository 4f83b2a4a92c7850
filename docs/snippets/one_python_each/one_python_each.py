"""A whole backend in one file: every worker is a Python interpreter of its own.

launcher   start ── python -m one_python_each STARTUP FD ──▶ live   worker
           tell ── a pipe ──────────────────────────────▶ receive
           watch ◀─── Ready · Returned · Waiting · … · Outcome ── report
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from launchpad import outcome
from launchpad.courier import keyring
from launchpad.errors import Stopped
from launchpad.launch.backends.backend import Backend, Workers
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.planning.interpreter import HASH_SEED, InterpreterSettings
from launchpad.launch.rundir.directory import RunDirectory, socket_name
from launchpad.launch.worker.interpreter_exit import run_exit_steps
from launchpad.launch.worker.spec import WorkerSpec
from launchpad.launch.worker.worker import Worker, context_of
from launchpad.outcome import Outcome
from launchpad.runtime import context
from launchpad.runtime.commands import (
    AnnounceGone,
    AnnounceWatermarks,
    Command,
    KillWorker,
    StartWorker,
    StopWorker,
)
from launchpad.runtime.events import Ended, Event, Exiting, Ready

# part: launcher


class OnePythonEach(Backend):
    """The backend: it chooses the addresses of servers, and makes the workers of a launch."""

    def endpoint(self, address: str, kind: str) -> str:
        return f"unix:{{run}}/{socket_name(address)}" if kind == "courier" else "localhost:{port}"

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        return Interpreters(plan, run, report)


class Interpreters(Workers):
    """The workers of one launch: a process, a pipe and a watching thread for each."""

    def __init__(self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]):
        self.plan = plan
        self.run = run
        self.report = report
        self.live: dict[str, tuple[subprocess.Popen[bytes], Connection, threading.Thread]] = {}
        self.killed: set[tuple[str, int]] = set()
        self.attempts: dict[str, int] = {}
        self.settings = InterpreterSettings.here()  # the script's: logging, warnings, hash seed

    def execute(self, command: Command) -> None:
        match command:
            case StartWorker(worker, attempt):
                self.start(worker, attempt)
            case KillWorker(worker):
                self.kill(worker)
            case AnnounceGone(to=""):
                for live_worker in list(self.live):
                    self.tell(live_worker, command)
            case StopWorker(worker) | AnnounceWatermarks(worker) | AnnounceGone(to=worker):
                self.tell(worker, command)

    def start(self, worker: str, attempt: int) -> None:
        ours, theirs = Pipe()
        try:
            process = self.popen(worker, attempt, theirs.fileno())
        except OSError as error:
            self.report(Ended(Outcome(worker, outcome.FAILED, "start", attempt, str(error))))
            return
        finally:
            theirs.close()
        watcher = threading.Thread(target=self.watch, args=(worker, attempt, process, ours))
        self.live[worker] = (process, ours, watcher)
        self.attempts[worker] = attempt
        watcher.start()

    def popen(self, worker: str, attempt: int, pipe: int) -> subprocess.Popen[bytes]:
        plan = self.plan.worker(worker)
        startup = self.run.runtime / f"{worker}.{attempt}"  # nobody else can read that directory
        scope = self.run.scope
        token = keyring.find(scope)
        spec = WorkerSpec(
            plan=plan,
            program=self.plan.program,
            launch_type=self.plan.launch_type,
            endpoints=self.plan.endpoints,
            state=self.run.state_places(worker, plan.group),
        )
        payload = (spec, attempt, scope, token, sys.argv, self.settings)
        startup.write_bytes(pickle.dumps(payload))
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), HASH_SEED: self.settings.hash_seed}
        python = [plan.process.python or sys.executable, *self.settings.flags]
        with self.run.log(worker, attempt).open("ab") as log:
            return subprocess.Popen(
                [*python, "-m", "one_python_each", str(startup), str(pipe)],
                env={**os.environ, **environment, **plan.process.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[pipe],
                start_new_session=True,
            )

    def watch(
        self, worker: str, attempt: int, process: subprocess.Popen[bytes], pipe: Connection
    ) -> None:
        reported = None
        phase = "import"
        awaited = "its end"
        with pipe, contextlib.suppress(EOFError, OSError):
            while True:
                message = pipe.recv()
                if isinstance(message, Outcome):
                    reported = message
                    self.report(Exiting(worker, attempt))  # from here on it has its grace period
                elif isinstance(message, tuple):
                    (awaited,) = message
                elif isinstance(message, str):
                    phase = message
                else:
                    phase = "run" if isinstance(message, Ready) else phase
                    self.report(message)
        code = process.wait()
        kind = outcome.STOPPED if (worker, attempt) in self.killed else outcome.FAILED
        default = Outcome(worker, kind, phase, attempt, f"exited with code {code}", exit_code=code)
        if reported and not reported.is_failure and kind == outcome.STOPPED:
            cause = f"cut off while it waited for {awaited}"
            reported = replace(default, phase="stop", cause=cause, hung=True)
        self.report(Ended(reported or default))

    def tell(self, worker: str, command: Command) -> None:
        with contextlib.suppress(OSError):  # it has ended: its watcher reports that
            self.live[worker][1].send(command)

    def kill(self, worker: str) -> None:
        self.killed.add((worker, self.attempts[worker]))
        with contextlib.suppress(OSError):
            os.killpg(self.live[worker][0].pid, signal.SIGABRT)  # its stacks go to its log first

    def close(self) -> None:
        for worker, (process, _, watcher) in self.live.items():
            if process.poll() is None:
                self.kill(worker)
            watcher.join()


# part: worker


def live(startup: str, fd: str) -> int:
    """Run the worker in the new interpreter; return the exit code."""
    spec, attempt, scope, token, argv, settings = pickle.loads(Path(startup).read_bytes())
    Path(startup).unlink()
    os.set_inheritable(int(fd), False)
    pipe = Connection(int(fd))
    lock = threading.Lock()  # any thread of the worker may report

    def report(message: Any) -> None:
        with lock, contextlib.suppress(OSError):
            pipe.send(message)

    sys.argv = [*argv, *spec.plan.process.args]
    settings.apply()
    keyring.add(scope, token)
    me = context_of(spec, attempt, report)
    context.enter_process(me)
    signal.signal(signal.SIGUSR1, raise_stopped)
    faulthandler.enable()
    worker = Worker(spec.plan, me, report, interrupt, on_phase=report)
    threading.Thread(target=receive, args=(pipe, worker), daemon=True).start()
    result = worker.main()
    if result.traceback:
        print(result.traceback, file=sys.stderr)
    report(result)
    run_exit_steps(lambda step: report((step,)))
    return int(result.is_failure)


def receive(pipe: Connection, worker: Worker) -> None:
    """Execute the launcher's commands. When the launcher is gone, kill this process group."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            worker.execute(pipe.recv())
    os.killpg(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


def raise_stopped(number: int, frame: object) -> None:
    raise Stopped


if __name__ == "__main__" and len(sys.argv) == 3:
    sys.exit(live(*sys.argv[1:]))
# end
