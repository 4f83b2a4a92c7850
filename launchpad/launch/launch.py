"""The functions that a user's script calls with its program: `launch`, `run` and `plan`.

`import launchpad` imports this file, so the functions import late what only a launch needs.
"""

from __future__ import annotations

import os
import sys

# Type checkers read this name as True. Importing `typing` takes as long as everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import unittest
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal, overload

    from launchpad.launch.backends.backend import Backend
    from launchpad.launch.detached import Detached
    from launchpad.launch.plan import LaunchPlan
    from launchpad.launch.planning.planner import Preload
    from launchpad.launch.registry import LaunchType
    from launchpad.launch.running import Running
    from launchpad.program import Program
    from launchpad.resources import PythonProcess, Resources
    from launchpad.restart_policy import RestartPolicy

_QUIET = "output_to_files"
_TERMINALS = ("current_terminal", _QUIET)
_STATUS_LINES = "launchpad.view.status_lines"
"""The view of status lines. Views are a layer above the launch, so this one is loaded by name."""

_LOG_LEVEL = "LP_LOG_LEVEL"
"""The environment variable to use instead of --lp_log_level where a script can't be given flags."""


def plan(
    program: Program,
    launch_type: LaunchType | str | None = None,
    local_resources: Mapping[str, PythonProcess] | None = None,
    *,
    restart: RestartPolicy | Mapping[str, RestartPolicy] | None = None,
    resources: Mapping[str, Resources] | None = None,
    state: str | os.PathLike[str] | None = None,
    preload: Preload = None,
    **options: Any,
) -> LaunchPlan:
    """Return what `launch` would run, as data, without starting or changing anything.

    Example:
        print(lp.plan(program, launch_type="local_mp"))
        print(lp.plan(program, "kubernetes", image="registry.example.org/me/project:3").to_yaml())

    Raises:
        DefinitionError: there is a mistake in the program; the text has the node's label and the path to the
            mistake.
    """
    from launchpad.launch import registry
    from launchpad.launch.planning import planner

    name = registry.launch_type_name(launch_type)
    backend = _backend_of(name, options)
    return planner.plan(
        _single(program), backend, name, local_resources, restart, resources, state, preload
    )


if TYPE_CHECKING:

    @overload
    def launch(
        programs: Program | Sequence[Program],
        launch_type: LaunchType | str | None = None,
        *,
        restart: RestartPolicy | Mapping[str, RestartPolicy] | None = None,
        resources: Mapping[str, Resources] | None = None,
        state: str | os.PathLike[str] | None = None,
        preload: Preload = None,
        pdb: bool | None = None,
        view: Literal["browser", "terminal"] | None = None,
        detach: Literal[True],
        **options: Any,
    ) -> Detached: ...

    @overload
    def launch(
        programs: Program | Sequence[Program],
        launch_type: LaunchType | str | None = None,
        xm_resources: None = None,
        local_resources: Mapping[str, PythonProcess] | None = None,
        test_case: unittest.TestCase | None = None,
        terminal: str | None = None,
        *,
        restart: RestartPolicy | Mapping[str, RestartPolicy] | None = None,
        resources: Mapping[str, Resources] | None = None,
        state: str | os.PathLike[str] | None = None,
        preload: Preload = None,
        pdb: bool | None = None,
        view: Literal["browser", "terminal"] | None = None,
        detach: Literal[False] = False,
        **options: Any,
    ) -> Running: ...


def launch(
    programs: Program | Sequence[Program],
    launch_type: LaunchType | str | None = None,
    xm_resources: None = None,
    local_resources: Mapping[str, PythonProcess] | None = None,
    test_case: unittest.TestCase | None = None,
    terminal: str | None = None,
    *,
    restart: RestartPolicy | Mapping[str, RestartPolicy] | None = None,
    resources: Mapping[str, Resources] | None = None,
    state: str | os.PathLike[str] | None = None,
    preload: Preload = None,
    pdb: bool | None = None,
    view: Literal["browser", "terminal"] | None = None,
    detach: bool = False,
    **options: Any,
) -> Running | Detached:
    """Run a program, and return at once.

    A script whose last line is `lp.launch(program)` runs until the program ends. It exits with 0 if the
    program ended well. Otherwise the report of the failure is the last thing on the screen, and the exit
    code says what kind of failure it was; see docs/stopping_and_failures.md.

    Example:
        running = lp.launch(program, launch_type="local_mp")
        running.wait(timeout_s=60)

    Args:
        programs: The program, or a sequence with one program in it.
        launch_type: How to run it. The default is the flag --lp_launch_type, else the environment variable
            LP_LAUNCH_TYPE, else local_mt. See docs/configuration.md.
        local_resources: Label → PythonProcess, for local processes.
        test_case: A test. The program is stopped when it ends.
        terminal: Where workers' output goes in addition to their log files: `current_terminal`, or
            `output_to_files` for nowhere else. The default is the environment variable
            LAUNCHPAD_LAUNCH_LOCAL_TERMINAL, else `current_terminal`. Tests print nothing.
        restart: What happens when a worker ends: one policy for all groups, or label → policy. It replaces
            the group's own policy.
        resources: Label → Resources. They replace all resources that the group itself was given.
        state: A folder, or a URL that fsspec opens, in which workers save their state. A later launch with
            the same folder goes on where this one ended. While a program uses the folder, another launch with
            it is refused. See docs/state.md.
        preload: Modules that are imported once, before workers are forked, such as `["torch"]`; or label →
            modules.
        pdb: If True, a worker that fails waits until a user has looked at its exception with
            `python -m launchpad attach`, and fails only then. The others go on. The default is the flag
            --lp_pdb.
        view: `browser` shows the program as `launchpad view` does. `terminal` shows lines at the bottom of
            the terminal: workers, restarts, the busiest edges. It shows nothing if there is no terminal. The
            default is the flag --lp_view. A detached program can have no view.
        detach: If True, the program runs on a cluster (`ray`, `kubernetes`), and goes on when the script has
            ended. `python -m launchpad ps`, `logs` and `stop` find it again.
        xm_resources: An option for another company's cluster. Only None is accepted.
        options: Further options of the launch type: `image=…` for `kubernetes`; see its page in docs/.
            Options that mean nothing here, `compat.MEANINGLESS`, are ignored.

    Raises:
        DefinitionError: there is a mistake in the program, or a mistyped `--lp_…` flag; nothing was started.
        LaunchError: the backend could not start, and nothing is left running; or a process that
            multiprocessing started imports this script; or gevent or eventlet has replaced threads.
    """
    from launchpad import command_line, compat
    from launchpad.launch import registry
    from launchpad.launch.logs import own_log

    _check_process()
    options = compat.without_meaningless(options, xm_resources)
    command_line.check_command_line(chooses=launch_type is None)
    program = _single(programs)
    name = registry.launch_type_name(launch_type)
    _warn_of_a_flag_without_effect(name)
    _open_standard_streams()
    # Set the level before a process is started early, because that process takes over the settings of
    # `logging`.
    own_log.set_level(_log_level().upper())
    with registry.started_early(name) as early:
        # The code below imports a lot. The process that was started early imports at the same time.
        from launchpad.launch.planning import planner

        backend = _backend_of(name, options)
        backend.early = early
        launch_plan = planner.plan(
            program, backend, name, local_resources, restart, resources, state, preload
        )
        view_name = _checked_view(view, detach)
        if command_line.read(command_line.PDB) if pdb is None else pdb:
            launch_plan = _waiting_for_pdb(launch_plan, backend, detach)
        grace_s = command_line.termination_notice_s()
        if detach:
            return backend.detach(launch_plan, grace_s)
        return _started(launch_plan, backend, view_name, terminal, test_case, grace_s)


def _check_process() -> None:
    """Raise LaunchError if this process must not launch programs."""
    from launchpad.errors import LaunchError

    importer = _importer()
    if importer:
        raise LaunchError(
            f"{importer} imports this module, and would launch its program once more. Launch it under"
            " `if __name__ == '__main__':`, or in a function that is called and not imported"
        )
    library = _replaces_threads()
    if library:
        raise LaunchError(
            f"{library} has replaced Python's threads in this process (monkey patching), and launchpad needs"
            " real ones: the program would hang. Launch from a script that is not patched; a worker that is a"
            " process may patch what it needs in its own run()"
        )


def _warn_of_a_flag_without_effect(launch_type: str) -> None:
    """Warn if --lp_launch_type has no effect, because the script itself names another launch type.

    If the script has an option of the same name, that option then has its default.
    """
    from launchpad import command_line
    from launchpad.runtime import context

    # A worker that launches a program doesn't warn: the flag was for the launch of the script.
    if context.try_current() is not None:
        return
    flag = command_line.remembered().get(command_line.LAUNCH_TYPE.name)
    if flag is not None and flag != launch_type:
        import warnings

        warnings.warn(
            f"--lp_launch_type={flag} has no effect: the script launches with launch_type={launch_type!r}."
            " Leave that out, and an option of this name too if the script has one: launchpad reads the flag",
            stacklevel=3,
        )


def _backend_of(launch_type: str, options: Mapping[str, Any]) -> Backend:
    """Return the backend of a launch type. If it takes no such option, say what the caller may have meant."""
    from launchpad.courier.explained import hint_for
    from launchpad.errors import DefinitionError
    from launchpad.launch import registry

    try:
        return registry.backend_of(launch_type, options)
    except registry.UnknownOption as error:
        import inspect

        known = [*inspect.signature(launch).parameters, *error.known]
        hint = hint_for(error.option, known, "launchpad.other_names:LAUNCH")
        raise DefinitionError(f"{error}{hint}") from None


def _log_level() -> str:
    """Return --lp_log_level, else $LP_LOG_LEVEL; empty if launchpad's own log stays off.

    Raises:
        ValueError: there is no such level.
    """
    from launchpad import command_line

    level: str = command_line.read(command_line.LOG_LEVEL)
    variable = os.environ.get(_LOG_LEVEL, "")
    if level or not variable:
        return level
    try:
        return command_line.as_log_level(variable)
    except ValueError as error:
        raise ValueError(f"{_LOG_LEVEL}={variable}: {error}") from None


def _replaces_threads() -> str:
    """Return the library that has replaced the system's threads; empty if no library has."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        return "gevent"
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        return "eventlet"
    return ""


def _importer() -> str:
    """Describe this process if it merely imports the code that launches; else return an empty text.

    A process that a program started imports the program's code. If that import launched the program again,
    the new processes would launch it once more, without end.
    """
    from launchpad.runtime import context

    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and getattr(processes.current_process(), "_inheriting", False):
        return "a process that multiprocessing has started"
    forkserver = sys.modules.get("launchpad.launch.backends.processes.forkserver")
    if forkserver is not None and forkserver.is_importing:
        return "the forkserver of the workers, for preload=,"
    payload = sys.modules.get("launchpad.launch.planning.payload")
    worker = context.try_current()
    if payload is not None and payload.is_loading() and worker is not None:
        return f"worker {worker.name!r}"
    return ""


def _started(
    launch_plan: LaunchPlan,
    backend: Backend,
    view_name: str,
    terminal: str | None,
    test_case: unittest.TestCase | None,
    grace_s: float,
) -> Running:
    """Run a plan, for `launch`."""
    import importlib

    from launchpad.launch import script_exit, signals, view_process
    from launchpad.launch.output.printer import Output
    from launchpad.launch.output.stdout_router import ThreadStdout
    from launchpad.launch.rundir.directory import RunDirectory
    from launchpad.launch.running import Running
    from launchpad.runtime import context

    launcher = context.try_current()
    if not backend.is_test and launcher is None:
        signals.watch(script_exit.on_signal)

    is_quiet = backend.is_test or _terminal(terminal) == _QUIET
    stdout = sys.stdout.original if isinstance(sys.stdout, ThreadStdout) else sys.stdout
    run = RunDirectory.create(launch_plan.program, launch_plan.endpoints)
    lines = None
    if view_name == "terminal" and not is_quiet and stdout is not None:
        lines = importlib.import_module(_STATUS_LINES).on(
            stdout, f"{launch_plan.program} · {launch_plan.launch_type}"
        )
    workers = [worker.name for worker in launch_plan.workers]
    output = Output(run, workers, None if is_quiet else stdout, lines)
    for note in launch_plan.notes:
        output.note(note)
    # A Ctrl-C during the start is handled below, when there is a program to stop.
    with signals.KeyboardInterruptHandler(lambda at_once: None) as ctrl_c:
        running = Running.start(launch_plan, backend, run, output, grace_s)
        script_exit.watch(running)
        if lines is not None:
            running.overlay = lines
            lines.watch(running)
        if launcher is None and not backend.is_test and view_name == "browser":
            view_process.start(running.run_id)
        if test_case is not None:
            test_case.addCleanup(running.stop_and_wait)
        if launcher is not None:
            why = f"{launcher.name}, which launched it, stops"
            launcher.stop.add_handler(lambda: running.stop(why))
        if ctrl_c.pressed is not None:
            running.ask_to_stop()
    return running


def run(
    program: Program,
    launch_type: LaunchType | str | None = None,
    *,
    timeout_s: float | None = None,
    **options: Any,
) -> dict[str, list[Any]]:
    """Run a program to its end. Return, for each group, the list of what its replicas returned.

    `Running.results` describes the values.

    Example:
        weights, *_ = lp.run(program, "local_mp")["trainer"]

    Args:
        timeout_s: How long the program may take. After that it is stopped.
        options: As for `launch`.

    Raises:
        ProgramFailed: a worker failed, and the program was stopped.
        ResultError: a worker's return value could not be pickled, sent or unpickled.
        TimeoutError: the program did not end in time.
    """
    with launch(program, launch_type, **options) as running:
        running.wait(timeout_s)
        return {label: running.results(label) for label in running.plan.groups}


def _checked_view(view: str | None, detach: bool) -> str:
    """Return the view that shows the program; empty for none.

    Raises:
        DefinitionError: there is no such view, or `detach` is set.
        LaunchError: no Python process can be started to serve the page.
    """
    from launchpad import command_line
    from launchpad.errors import DefinitionError

    view_name: str = command_line.read(command_line.VIEW) if view is None else view
    if view_name not in ("", *command_line.VIEWS):
        raise DefinitionError(f"there is no view={view_name!r}, only {command_line.VIEWS}")
    if view_name == "browser":
        from launchpad.launch.planning import interpreter

        interpreter.check_executable("the process that serves the page")
    if detach and view_name:
        raise DefinitionError(
            f"view={view_name!r} ends with this script, and detach=True leaves the program behind. "
            "`python -m launchpad view` shows it, from here or elsewhere."
        )
    return view_name


def _waiting_for_pdb(launch_plan: LaunchPlan, backend: Backend, detach: bool) -> LaunchPlan:
    """Return the plan with workers that wait for `launchpad attach` when they fail."""
    import dataclasses

    from launchpad.errors import DefinitionError

    if detach or not backend.can_attach:
        unreachable = f"workers of {launch_plan.launch_type!r}"
        if detach:
            unreachable = "what was left behind"
        raise DefinitionError(
            f"pdb=True: `launchpad attach` does not reach {unreachable}. Launch with local_mp to debug it."
        )
    workers = (
        dataclasses.replace(worker, policy=dataclasses.replace(worker.policy, pdb=True))
        for worker in launch_plan.workers
    )
    return dataclasses.replace(launch_plan, workers=tuple(workers))


def _open_standard_streams() -> None:
    """Make sure fds 0–2 are open, so that a new socket never becomes stdin, stdout or stderr.

    A worker's process would read such a socket as its stdin, or a library in C would write errors to it.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def _terminal(terminal: str | None) -> str:
    import warnings

    chosen = terminal or os.environ.get("LAUNCHPAD_LAUNCH_LOCAL_TERMINAL") or "current_terminal"
    if chosen not in _TERMINALS:
        warnings.warn(
            f"there is no terminal {chosen!r}, only {_TERMINALS}; using current_terminal",
            stacklevel=3,
        )
        return "current_terminal"
    return chosen


def _single(programs: Any) -> Program:
    from launchpad.errors import DefinitionError
    from launchpad.program import Program

    is_sequence = isinstance(programs, (list, tuple)) and len(programs) > 0
    program = programs[0] if is_sequence else programs
    if is_sequence and len(programs) > 1:
        raise DefinitionError(
            f"launch takes one lp.Program, got {len(programs)}; launch each of them: they run side by side"
        )
    if not isinstance(program, Program):
        raise DefinitionError(f"launch takes one lp.Program, got {programs!r}")
    return program
