"""launch() and plan(): where a user's program enters.

Imported by `import launchpad`, so it imports late what only a launch needs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, overload

from launchpad import flags

if TYPE_CHECKING:
    import unittest
    from collections.abc import Mapping, Sequence

    from launchpad.launch.backend import Backend
    from launchpad.launch.detached import Detached
    from launchpad.launch.output import Output
    from launchpad.launch.plan import LaunchPlan
    from launchpad.launch.registry import LaunchType
    from launchpad.launch.run_directory import RunDirectory
    from launchpad.launch.running import Running
    from launchpad.program import Program
    from launchpad.resources import PythonProcess, Resources
    from launchpad.restart_policy import RestartPolicy

_QUIET_TERMINALS = ("output_to_files",)
_TERMINALS = ("current_terminal", *_QUIET_TERMINALS)


def plan(
    program: Program,
    launch_type: LaunchType | str | None = None,
    local_resources: Mapping[str, PythonProcess] | None = None,
    *,
    restart: RestartPolicy | Mapping[str, RestartPolicy] | None = None,
    resources: Mapping[str, Resources] | None = None,
    **options: Any,
) -> LaunchPlan:
    """What `launch` would run, as data. Starts nothing and changes nothing.

    Example:
      print(lp.plan(program, launch_type="local_mp"))
      print(lp.plan(program, "kubernetes", image="registry.example.org/me/project:3").to_yaml())

    Raises:
      DefinitionError: a mistake in the program, with the node's label and the path to it.
    """
    from launchpad.launch import registry, setup

    name = registry.launch_type_name(launch_type)
    backend = registry.backend_of(name, options)
    return setup.plan(_single(program), backend, name, local_resources, restart, resources)


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
    detach: Literal[False] = False,
    serialize_py_nodes: bool | None = None,
    controller_xm_requirements: None = None,
    **options: Any,
) -> Running: ...


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
    detach: Literal[True],
    serialize_py_nodes: bool | None = None,
    controller_xm_requirements: None = None,
    **options: Any,
) -> Detached: ...


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
    detach: bool = False,
    serialize_py_nodes: bool | None = None,
    controller_xm_requirements: None = None,
    **options: Any,
) -> Running | Detached:
    """Runs a program; returns at once.

    A script whose last line is `lp.launch(program)` runs until the program ends, and exits with 0 if it
    ended well, else with 1 and the report of the failure as the last thing on the screen.

    Example:
      running = lp.launch(program, launch_type="local_mp")
      running.wait(timeout_s=60)

    Args:
      programs: The program; a sequence of one is taken too.
      launch_type: How to run it; if None, the flag --lp_launch_type, then the environment variable
        LP_LAUNCH_TYPE, then local_mt.
      local_resources: Label → PythonProcess, for local processes.
      test_case: The program is stopped when this test ends.
      terminal: Where workers' output goes besides their log files: `current_terminal` or, for nowhere,
        `output_to_files`. If None, the environment variable LAUNCHPAD_LAUNCH_LOCAL_TERMINAL, then
        `current_terminal`; tests print nothing.
      restart: What happens when a worker ends: a policy for all groups, or by label; it counts more than
        the group's own.
      resources: Label → Resources, in the place of all that the group itself was given.
      detach: The program runs on when the script has ended, if there is a cluster that keeps it (`ray`,
        `kubernetes`); `python -m launchpad ps`, `logs` and `stop` find it again.
      serialize_py_nodes: Makes no difference: nodes are always serialised.
      xm_resources: Belongs to another company's cluster; only None.
      controller_xm_requirements: The same.
      options: What the launch type needs to know besides: `image=…` for `kubernetes`, see its page in docs/.

    Raises:
      DefinitionError: a mistake in the program; nothing was started.
      LaunchError: the backend could not start; nothing is left running.
    """
    from launchpad.errors import DefinitionError
    from launchpad.launch import registry, setup
    from launchpad.launch.run_directory import RunDirectory

    if xm_resources is not None or controller_xm_requirements is not None:
        raise DefinitionError(
            "xm_resources and controller_xm_requirements mean nothing here; leave them out"
        )
    program = _single(programs)
    name = registry.launch_type_name(launch_type)
    backend = registry.backend_of(name, options)
    planned = setup.plan(program, backend, name, local_resources, restart, resources)
    if detach:
        return backend.detach(planned, flags.termination_notice_s())
    run = RunDirectory.create(program.name, planned.endpoints)
    return _begin(planned, backend, run, _output(run, planned, backend, terminal), test_case)


def _begin(
    planned: LaunchPlan,
    backend: Backend,
    run: RunDirectory,
    output: Output,
    test_case: unittest.TestCase | None,
) -> Running:
    """Starts the run and hands it over; a Ctrl-C meanwhile is heard when somebody cares for it."""
    from launchpad.launch import starting
    from launchpad.launch.ctrl_c import CtrlC

    _prepare_end_of_script(run, backend)
    with CtrlC(lambda at_once: None) as ctrl_c:
        running = starting.begin(planned, backend, run, output, flags.termination_notice_s())
        _hand_over(running, test_case)
        if ctrl_c.pressed is not None:
            running.ask_to_stop()
    return running


def _prepare_end_of_script(run: RunDirectory, backend: Backend) -> None:
    """Whoever waits at the end of the script must be registered while it can still be."""
    from launchpad.errors import LaunchError

    try:
        from launchpad.launch import at_exit
    except RuntimeError as error:
        run.remove()
        raise LaunchError(f"the script has ended, too late to launch a program: {error}") from error
    if not backend.is_test:
        at_exit.watch_signals()


def _hand_over(running: Running, test_case: unittest.TestCase | None) -> None:
    """Sees to it that somebody ends the program: the test, the worker that launched it, or the script."""
    from launchpad import context
    from launchpad.launch import at_exit

    at_exit.watch(running)
    if test_case is not None:
        test_case.addCleanup(running.stop_and_wait)
    launcher = context.try_current()
    if launcher is not None:
        launcher.add_stop_handler(
            lambda: running.stop(f"{launcher.name}, which launched it, stops")
        )


def _output(
    run: RunDirectory, planned: LaunchPlan, backend: Backend, terminal: str | None
) -> Output:
    from launchpad.launch.capture import terminal_stream
    from launchpad.launch.output import Output

    quiet = backend.is_test or _terminal(terminal) in _QUIET_TERMINALS
    return Output(run, [w.name for w in planned.workers], None if quiet else terminal_stream())


def _terminal(given: str | None) -> str:
    import warnings

    chosen = given or os.environ.get("LAUNCHPAD_LAUNCH_LOCAL_TERMINAL") or "current_terminal"
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

    if isinstance(programs, Program):
        return programs
    if (
        isinstance(programs, (list, tuple))
        and len(programs) == 1
        and isinstance(programs[0], Program)
    ):
        return programs[0]
    raise DefinitionError(f"launch takes one lp.Program, got {programs!r}")
