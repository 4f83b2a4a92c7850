"""A launched program: what `lp.launch` returns.

launch() ── plan, run directory ──▶ Running.start ── claim, token, sockets, workers ──▶ Running
                                                                                           │ owns
a thread of the run: Runner ── Supervisor.start_all, commands, at last all is closed ◀─────┘
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, overload

from launchpad import outcome
from launchpad.courier import Client, caller, keyring
from launchpad.courier.client.typed import CourierClient
from launchpad.courier.explained import Explained, explains_arguments
from launchpad.courier.telemetry import recording
from launchpad.errors import LaunchError, NotRunningError, ProgramFailed
from launchpad.graph.picture import picture_of
from launchpad.handle import Handle
from launchpad.launch.backends.backend import Backend
from launchpad.launch.output.printer import Output, Overlay
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir import control_server, record
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.rundir.history import RunHistory
from launchpad.launch.rundir.record import WorkerStatus
from launchpad.launch.signals import EXIT_CODES, KeyboardInterruptHandler
from launchpad.launch.supervision import look
from launchpad.launch.supervision.inquiries import rate_of
from launchpad.launch.supervision.progress import Progress
from launchpad.launch.supervision.runner import (
    BrokenLauncher,
    EndAwaited,
    Inbox,
    Runner,
    StopRequest,
)
from launchpad.launch.supervision.worker_state import State
from launchpad.nodes.courier import CourierHandle
from launchpad.runtime import context, results
from launchpad.runtime.context import LaunchedAddress
from launchpad.telemetry.edge_stats import Edges
from launchpad.telemetry.program_metrics import Metrics
from launchpad.telemetry.trace import Trace

ClientT = TypeVar("ClientT")

_REPORTED_S = 10.0
"""Seconds that workers may take to report what they have recorded."""

_NOT_ENDED = (State.STARTING, State.RUNNING, State.STOPPING, State.RESTARTING)


class Running(Explained):
    """A launched program. Wait for it, stop it, look at it, call into it.

    Example:
        with lp.launch(program, "local_mp") as running:     # stopped at the end of the block
            print(running.client("learner").get_variables())

    All methods may be called from any thread. Leaving the `with` block stops the program, and raises
    ProgramFailed if it had failed.

    Attributes:
        plan: The plan that was launched.
        run_id: The name of this run.
        log_directory: Where the logs of this run are.
        overlay: What the terminal shows about the program in addition to its output.
        is_test: True if the program belongs to a test, and ends with the script at the latest.
        is_reported: True if the program failed, and the failure was raised or printed.
        is_asked: True if this script or Ctrl-C asked the program to stop.
        skips_grace: True if the program was asked to stop at once.
    """

    _other_names = "launchpad.other_names:RUNNING"

    def __init__(self, plan: LaunchPlan, run: RunDirectory, runner: Runner, is_test: bool) -> None:
        self.plan = plan
        self.run_id = run.run_id
        self.log_directory = run.logs
        self.is_test = is_test
        self.overlay: Overlay | None = None
        self.is_reported = False
        self.is_asked = False
        self.skips_grace = False
        self._run = run
        self._runner = runner

    @classmethod
    def start(
        cls, plan: LaunchPlan, backend: Backend, run: RunDirectory, output: Output, grace_s: float
    ) -> Running:
        """Start a planned program, for `lp.launch`. If that fails, nothing of it is left.

        The plan's devices and endpoints become final here.

        Raises:
            LaunchError: the backend could not start, or there is no room for another thread or socket.
        """
        inbox: Inbox = Inbox()
        undo = contextlib.ExitStack()
        runner: Runner | None = None
        try:
            undo.callback(plan.release_buffers)
            undo.callback(run.remove)
            keyring.add(run.scope, os.urandom(32))
            undo.callback(keyring.remove, run.scope)
            plan = backend.claim(plan, run)
            placed = (
                dataclasses.replace(w, endpoints={a: run.place(e) for a, e in w.endpoints.items()})
                for w in plan.workers
            )
            plan = dataclasses.replace(plan, workers=tuple(placed))

            undo.callback(output.close)
            workers = backend.create_workers(plan, run, inbox.put)
            undo.callback(workers.close)
            try:
                # Do this after `create_workers`: from then on, the backend removes the directory if this
                # process is killed.
                run.make_runtime()
            except OSError as error:
                raise LaunchError(f"no directory for sockets: {error}") from error
            runner = Runner(plan, run, workers, output, inbox, undo, grace_s)
            running = cls(plan, run, runner, backend.is_test)
            reachable = {uid: running._place(address) for uid, address in plan.uids.items()}
            undo.enter_context(context.published(reachable))
            output.progress = Progress(runner.states)
            try:
                output.open()
                runner.thread.start()
            except RuntimeError as error:
                raise LaunchError(
                    f"no thread could be started: {error}; look at `ulimit -u` and the memory left"
                ) from error
            running._publish(output, undo)
        except BaseException:
            if runner is not None and runner.thread.ident is not None:
                # The runner's thread closes everything.
                inbox.put(StopRequest("its launch was interrupted", at_once=True))
            else:
                with contextlib.suppress(Exception):
                    undo.close()
            raise
        finally:
            if runner is not None:
                runner.is_published.set()
        return running

    def _publish(self, output: Output, undo: contextlib.ExitStack) -> None:
        """Let `python -m launchpad` find this program, whose workers have begun already."""
        record.write(self._run, self.plan)
        by_cli = "stopped by `python -m launchpad stop`"
        inbox = self._runner.inbox
        try:
            control = control_server.serve(
                self._run.runtime,
                status=self.status,
                stop=lambda now: inbox.put(StopRequest(by_cli, now, "stopping, as asked")),
                stacks=self.stacks,
                restart=lambda worker: self.ask_to_restart(worker, control_server.RESTARTED),
                attach=lambda worker, *to: self._runner.workers_of(worker).attach(worker, *to),
                metrics=self.metrics,
                trace=self.trace,
                picture=lambda: dataclasses.asdict(picture_of(self.plan)),
                history=self.history,
            )
            undo.callback(control.stop, 0.1)
        except (OSError, RuntimeError) as error:  # RuntimeError: no new thread can be started
            output.note(f"`python -m launchpad` cannot reach this program: {error}")

    @explains_arguments("launchpad.other_names:TIMEOUT")
    def wait(
        self,
        timeout_s: float | Collection[str] | None = None,
        *,
        labels: Collection[str] | None = None,
        raise_error: bool = True,
        return_on_first_completed: bool = False,
    ) -> None:
        """Block until the program has ended.

        Args:
            timeout_s: How long to wait at most. The program goes on when the time is up. Labels are accepted
                here too, since programs written for dm-launchpad pass them first.
            labels: Wait only for the workers of these groups.
            raise_error: If False, a failure is not raised here.
            return_on_first_completed: Return when the first of the workers has ended, instead of the last.

        Raises:
            ProgramFailed: a worker failed; the error's text is the whole report.
            TimeoutError: the program, or these workers, did not end in time.
            KeyError: there is no such group.
        """
        __tracebackhide__ = True  # pytest and IPython show the line that waits
        if isinstance(timeout_s, Collection):
            labels = timeout_s
            timeout_s = None
        for label in labels or ():
            if label not in self.plan.groups:
                raise self._no_group(label)
        if timeout_s is None and labels is None:
            self.note_if_endless()
        with KeyboardInterruptHandler(self.ask_to_stop) as ctrl_c:
            in_time = self._runner.wait_for(labels, return_on_first_completed, timeout_s)
            if ctrl_c.pressed is not None:
                self._runner.wait_for()
        if not in_time:
            unfinished = ", ".join(w.name for w in self._runner.states() if w.state in _NOT_ENDED)
            raise TimeoutError(
                f"program {self.plan.program!r} still runs after {timeout_s} s: {unfinished}"
            )
        if raise_error:
            if self.failure() is not None:
                self._runner.wait_for()
            self.is_reported = self.is_reported or self.is_done
            failure = self.failure()
            if failure is not None:
                raise failure

    @explains_arguments("launchpad.other_names:TIMEOUT")
    def results(self, label: str, timeout_s: float | None = None) -> list[Any]:
        """Return the values that a group's functions or `run()` methods returned, by replica.

        Wait until all workers of the group have returned. The value of a restarted worker is what its last
        attempt returned. The value is None for a worker that returned nothing, was stopped before it
        returned, or only serves. For a colocation, the value is a tuple of what each of its nodes returned.
        Each call makes new objects.

        Example:
            running = lp.launch(program, "local_mp")
            losses = running.results("trainer")

        Args:
            label: The group, or a worker that `thread_worker` added.
            timeout_s: How long to wait at most.

        Raises:
            ProgramFailed: a worker failed.
            ResultError: a return value cannot be pickled, sent or unpickled; the text says why.
            TimeoutError: some workers had not returned in time.
            KeyError: there is no such group.
        """
        states = [w for w in self._runner.states() if w.plan.group == label]
        if not states:
            raise self._no_group(label)
        with KeyboardInterruptHandler(self.ask_to_stop) as ctrl_c:
            in_time = self._runner.wait_for((label,), False, timeout_s, done_is_enough=True)
            if ctrl_c.pressed is not None:
                self._runner.wait_for()
        if not in_time:
            unfinished = ", ".join(
                w.name for w in states if w.state in _NOT_ENDED and not w.current.is_done
            )
            raise TimeoutError(f"after {timeout_s} s there is no result of {unfinished} yet")
        if self.failure() is not None:
            self.wait()
        by_replica: dict[int, list[Any]] = {}
        for state in states:
            of_replica = by_replica.setdefault(state.plan.replica_index, [])
            of_replica.append(results.value_of(state.current.result))
        are_parts = bool(states[0].plan.colocation)
        return [tuple(values) if are_parts else values[0] for values in by_replica.values()]

    def edges(self, timeout_s: float = 10.0) -> Edges:
        """Return what has gone over the program's edges so far: calls, bytes, waiting, by caller and method.

        Running workers are asked now. Workers that have ended reported their counts at their end. After an
        orderly end the counts are exact. The script's own calls are included, as counted by the servers. See
        docs/edges.md.

        Example:
            print(running.edges().of(server="learner"))

        Args:
            timeout_s: How long workers may take to answer. For workers that don't, their last counts are
                used.
        """
        return look.edges(*self._runner.inquiries.counts(timeout_s), self._runner.lifetime.uptime_s)

    def metrics(self, timeout_s: float = 5.0) -> Metrics:
        """Return the program's numbers at this moment: its edges, and what each worker uses of its host.

        Nothing is gathered between calls. For rates, keep an earlier result and compare with it, as in the
        example. See docs/metrics.md.

        Example:
            before = running.metrics()
            time.sleep(1.0)
            print(running.metrics().since(before).edges.total(server="learner").calls_per_s)

        Args:
            timeout_s: How long workers may take to answer. Workers that don't are listed in `silent`, and
                keep their last known numbers.
        """
        workers, silent = self._runner.inquiries.counts(timeout_s)
        rows = (look.of_worker(worker, is_silent=worker.name in silent) for worker in workers)
        uptime_s = self._runner.lifetime.uptime_s
        edges = look.edges(workers, silent, uptime_s)
        return Metrics(self.plan.program, self.run_id, uptime_s, uptime_s, tuple(rows), edges)

    def trace(self, seconds: float = 5.0) -> Trace:
        """Record for some seconds what the workers do: both ends of each call, waits, restarts.

        If there are many calls, only some are recorded. During the recording, a busy program is a few percent
        slower; before and after, it isn't slower at all. See docs/traces.md.

        Example:
            running.trace(5).save("trace.json")    # for https://ui.perfetto.dev

        Args:
            seconds: How long to record, up to 60 s; less if the program ends. On Kubernetes it takes 5 s
                more, since a request may take that long to reach a worker.

        Raises:
            ValueError: `seconds` is not positive, or too long.
            NotRunningError: the program has ended.
        """
        if not 0 < seconds <= recording.MAX_S:
            raise ValueError(f"a trace is of up to {recording.MAX_S:g} s, not of {seconds!r}")
        if self.is_done:
            raise NotRunningError(f"program {self.plan.program!r} has ended")
        seconds = min(seconds + self._runner.workers.announced_within_s, recording.MAX_S)
        of_script: list[recording.Recorded] = []
        script = caller.own_peer()
        rate = rate_of(len(self.plan.workers))
        session = recording.record(script, seconds, rate, of_script.append)
        try:
            inquiry = self._runner.inquiries.record(seconds, _REPORTED_S)
        finally:
            recording.end([session])
        recorded = {worker: report.recorded for worker, report in inquiry.reports.items()}
        return Trace(
            program=self.plan.program,
            run_id=self.run_id,
            recorded=recorded | {(script.name, 0): r for r in of_script if r.threads},  # noqa: B035
            changes=tuple(inquiry.changes),
            missing={
                (worker, attempt): why
                or f"{worker} (attempt {attempt}) has not reported within {_REPORTED_S:g} s"
                for (worker, attempt), why in inquiry.missing().items()
            },
            began_ns=session.began_ns,
            ended_ns=min(session.until_ns, time.monotonic_ns()),
            clock_ns=time.monotonic_ns(),
            wall_ns=time.time_ns(),
            clock_id=recording.clock_id(),
        )

    def note_if_endless(self) -> None:
        """Once all workers are ready, tell the user if nothing in the program will ever end it."""
        self._runner.inbox.put(EndAwaited())

    def stop(
        self, reason: str = "stopped by the launching script", *, at_once: bool = False
    ) -> None:
        """Stop the program, and block until it has ended. A program that has ended is left alone.

        Ctrl-C during this call ends the workers by force. After one more Ctrl-C, this call no longer waits
        for that.

        Args:
            reason: Why, for the record.
            at_once: If True, workers get no time to stop by themselves, even if an earlier stop
                gave them time.

        Raises:
            NotRunningError: this is a forked child of the launching process.
        """
        with KeyboardInterruptHandler(self.ask_to_stop, is_stopping=True):
            self.is_asked = True
            self.skips_grace = self.skips_grace or at_once
            self._runner.inbox.put(StopRequest(reason, at_once))
            self._runner.wait_for()

    def restart(self, worker: str, reason: str = "restarted by the launching script") -> None:
        """End the running attempt of a worker cleanly, and start the next, whatever its policy says.

        The worker has its grace period to stop, and saves its state as at every restart. This is not a
        failure, and does not count towards the restarts that the policy allows. If the policy has the scope
        `group` or `program`, the whole group or program is restarted. A worker that has ended is started
        too. Returns when the next attempt has begun; it may not be ready yet.

        Example:
            running.restart("actor-3")

        Args:
            reason: Why, for the record: the `cause` in `status()`.

        Raises:
            KeyError: there is no such worker.
            NotRunningError: the program is ending, or has ended.
        """
        self._runner.restart(worker, reason)

    def ask_to_restart(self, worker: str, reason: str) -> None:
        """Ask for a restart, as `restart` does, but without waiting."""
        self._runner.request_restart(worker, reason)

    def ask_to_stop(self, at_once: bool = False) -> None:
        """Ask the program to stop, as Ctrl-C does, without waiting for anything, not even a lock.

        Args:
            at_once: If True, workers get no time to stop by themselves.
        """
        self.is_asked = True
        self.skips_grace = self.skips_grace or at_once
        note = "" if at_once else "stopping … (Ctrl-C again: by force)"
        reason = "interrupted by Ctrl-C or a signal"
        self._runner.inbox.put(StopRequest(reason, at_once, note))

    def abandon(self) -> None:
        """Before the script exits at once, clean up what nothing else would clean up."""
        self._run.remove()
        if self.overlay is not None:
            self.overlay.close()

    def stop_and_wait(self) -> None:
        """Stop the program. Then raise ProgramFailed if it failed and the failure was not reported before."""
        __tracebackhide__ = True
        self.stop()
        self.wait(raise_error=not self.is_reported)

    @property
    def is_done(self) -> bool:
        """True if the program has ended, well or badly."""
        return self._runner.lifetime.done.is_set()

    def failure(self) -> ProgramFailed | LaunchError | None:
        """Return the error that ended the program, without raising it; None if there is no such error."""
        failures = list(self._runner.supervisor.failures)
        if failures:
            first = outcome.first_cause(failures)
            consequences = tuple(o for o in failures if o is not first)
            return ProgramFailed(self.plan.program, first, consequences)
        crash = self._runner.crash
        if crash is not None:
            why = str(crash) if isinstance(crash, BrokenLauncher) else f"it crashed: {crash!r}"
            return LaunchError(
                f"the launcher of {self.plan.program!r} could not go on, and its workers were ended: {why}"
            )
        return None

    def exit_status(self) -> int:
        """Return the exit code that says how the program ended; 0 if it ended well or still runs.

        A script whose last line is `lp.launch(program)` exits with this code. The codes are in
        docs/stopping_and_failures.md.
        """
        failure = self.failure()
        if isinstance(failure, ProgramFailed):
            return outcome.exit_status(failure.outcome)
        if failure is not None:
            return outcome.NOT_THERE
        outcomes = [w.outcome for w in self._runner.states() if w.outcome is not None]
        if self._runner.has_grace and any(o.hung for o in outcomes):
            return outcome.HUNG
        # To the cluster, the job must not look as if it had done all of its work.
        return EXIT_CODES[signal.SIGTERM] if self._runner.supervisor.was_cut_short else 0

    def status(self) -> list[WorkerStatus]:
        """Return a row for each worker."""
        now = time.monotonic()
        rows: list[WorkerStatus] = []
        for worker in self._runner.states():
            next_start = worker.next_start
            row = WorkerStatus(
                worker=worker.name,
                label=worker.plan.group,
                state=worker.shown_state,
                attempt=worker.attempt,
                cause="" if worker.outcome is None else worker.outcome.cause,
                log_path=str(self._run.log(worker.name, max(1, worker.attempt))),
                pid=worker.current.pid or None,
                started_at=worker.current.started_at,
                gpus=worker.plan.gpus,
                next_start="" if next_start is None else next_start.shown(now),
                debugged=worker.current.debugged if worker.is_alive else "",
            )
            rows.append(row)
        return rows

    def history(self) -> RunHistory:
        """Return when and how the last attempts of all workers began and ended, and the failures.

        When the program has ended, this is also in `history.json`, beside the logs.
        """
        return self._runner.history()

    def stacks(self, worker: str) -> str:
        """Return what the threads of a worker are doing, as text. This may take a moment."""
        return self._runner.workers_of(worker).stacks(worker)

    def logs(self, label: str) -> str:
        """Return what the workers of a group, or one worker, have printed so far, in all attempts.

        Raises:
            KeyError: there is no such group or worker.
        """
        names = [w.name for w in self.plan.workers if label in (w.group, w.name)]
        if not names:
            raise self._no_group(label)
        return "".join(self._run.log_files.text(name) for name in names)

    def thread_worker(self, name: str, function: Callable[[], object]) -> None:
        """Run a function in a thread of this process, as one more worker of the program.

        The program does not end before the function has returned, and fails if the function raises. In the
        function, `lp.stop()` and `lp.wait_for_stop()` refer to this program. A program that is ending takes
        no more workers.

        Raises:
            ValueError: the name is taken.
        """
        self._runner.add_thread(name, function)

    def crash(self, worker: str, why: str) -> str:
        """Make a worker fail, for `lp.testing.KillWorkers`, unless it is a process of this host.

        A thread is interrupted, and that counts as a failure. Any other worker is killed.

        Returns:
            How the worker was ended, `Stopped` or `SIGKILL`; empty if it is a process of this host, or does
                not run.
        """
        return self._runner.workers_of(worker).crash(worker, why)

    @overload
    def client(self, label: str, index: int = 0) -> CourierClient[Any]: ...

    @overload
    def client(self, label: Handle[ClientT]) -> ClientT: ...

    def client(self, label: str | Handle[Any], index: int = 0) -> Any:
        """Return a client of a CourierNode for the launching script; in a colocation, the first one's.

        If the node has a client class of its own, the client is of that class: a QueueNode gives an
        `lp.Queue`.

        The client is like one that a worker gets for the node's handle: it has the node's
        `courier_client_kwargs`, and knows the methods that may run twice.

        Example:
            running.client(learner).get_step()          # learner = program.add_node(…), and typed so
            running.client("actor", 3).get_step()
            running.client("actor-3").get_step()

        Args:
            label: The handle of a node, or its group, or the name of a worker.
            index: The replica of the group.

        Raises:
            KeyError: there is no such node, group, replica or worker, or it serves nothing.
            NotRunningError: the program has ended.
        """
        if isinstance(label, Handle):
            return self._client_of(label)
        if not isinstance(label, str):
            raise TypeError(f"client takes a handle, or the label of a group, got {label!r}")
        name = f"{label}-{index}"
        if label not in self.plan.groups:
            names = {w.name for w in self.plan.workers} | {w.colocation for w in self.plan.workers}
            if label not in names or index:
                raise self._no_group(label)
            name = label
        for address in self.plan.endpoints:
            worker, _, role = address.partition("/")
            if (worker == name or worker.startswith(f"{name}.")) and role.endswith("courier"):
                return self._client_at(address, self.plan.client_options.get(address, {}))
        raise KeyError(f"{name} serves nothing; those that do: {sorted(self.plan.endpoints)}")

    def _client_of(self, handle: Handle[Any]) -> Any:
        """Return the client that the handle turns into."""
        if not isinstance(handle, CourierHandle):
            raise KeyError(f"{handle!r} turns into no client: its node serves no calls")
        uid, options = handle.client_options
        address = self.plan.uids.get(uid)
        if address is None:
            raise KeyError(f"{handle!r} is of no node of program {self.plan.program!r}")
        return self._client_at(address, options)

    def _client_at(self, address: str, options: Mapping[str, Any]) -> Any:
        """Return a client of the server at an address."""
        worker = address.partition("/")[0]
        if self.is_done:
            raise NotRunningError(f"program {self.plan.program!r} has ended, and {worker} with it")
        place = self._place(address)
        client_options = dict(options)
        made_into = client_options.pop("made_into", None)
        client = Client[Any](
            place.where if place.can_move else place.where(),
            name=worker,
            failure_check=place.failure_check,
            **client_options,
        )
        return made_into(client) if made_into else client

    def clients(self, label: str) -> list[CourierClient[Any]]:
        """Return the clients of all replicas of a group, in order.

        Example:
            steps = lp.broadcast(running.clients("actor")).get_step()

        Raises:
            KeyError: there is no such group, or it serves nothing.
            NotRunningError: the program has ended.
        """
        if label not in self.plan.groups:
            raise self._no_group(label)
        n = self.plan.groups[label][0].num_replicas
        return [self.client(label, index) for index in range(n)]

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: object
    ) -> None:
        if not self._runner.lifetime.is_here and error is not None:
            # A forked child leaves the block, by sys.exit() or an error. The program belongs to its parent.
            return
        self.stop()
        if error is None:
            self.wait()

    def __repr__(self) -> str:
        state = "ended" if self.is_done else "running"
        return f"<Running {self.plan.program!r} on {self.plan.launch_type}, {state}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a table of the workers as they are now."""
        return record.status_table(repr(self), self.status())

    def _no_group(self, label: str) -> KeyError:
        labels = list(self.plan.groups)
        return KeyError(f"program {self.plan.program!r} has no group {label!r}; it has {labels}")

    def _place(self, address: str) -> LaunchedAddress:
        """Return where an address is, as this process reaches it."""
        moving_places = self._runner.workers.places()
        places = self.plan.endpoints if moving_places is None else moving_places
        worker = address.partition("/")[0]
        return LaunchedAddress(
            where=lambda: places.get(address, ""),
            can_move=moving_places is not None,
            worker=worker,
            failure_check=lambda: self._runner.failure_of(worker),
        )
