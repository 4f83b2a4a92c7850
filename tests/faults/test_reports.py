"""F12, F13, F15, F20 to F25: what the report of a failed program says of each kind of end, in full."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pytest

import launchpad as lp
from tests import nodes
from tests.faults.backends import on
from tests.helpers.programs import failure_of, single
from tests.waiting import until

DEADLINE_S = 60


class NeedsWhatIsNotThere:
    """Unpickles into an import that fails."""

    def __reduce__(self) -> Any:
        return __import__, ("a_module_that_does_not_exist",)


def import_it(what: object) -> None:
    raise AssertionError(what)


def build_for_ever() -> None:
    while True:
        time.sleep(0.01)


class Endless:
    def __init__(self) -> None:
        build_for_ever()

    def run(self) -> None: ...


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def want_too_much() -> None:
    raise MemoryError


def segfault() -> None:
    ctypes.string_at(0)


def fail() -> None:
    raise ValueError("it broke")


def opt_out() -> None:
    raise lp.DoNotRestart("there is no dataset")


@dataclass(frozen=True)
class End:
    """A way to end badly, and what is said of it. `cause` and `hint` are patterns for the whole text."""

    name: str
    node: Callable[[], lp.Node[Any]]
    error_type: str
    cause: str
    _: KW_ONLY
    phase: str = "run"
    hint: str = ""
    shown: str = ""
    exit_status: int = 1
    where: tuple[str, ...] = ("test_mt", "test_mp")
    restart: lp.RestartPolicy | None = None


PROCESSES = ("test_mp",)
ONCE = lp.RestartPolicy(max_restarts=1, backoff=0)
QUICK = lp.RestartPolicy(max_restarts=0, start_timeout_s=3)
ENDS = [
    End(
        "F12 import",
        lambda: lp.PyNode(import_it, NeedsWhatIsNotThere()),
        "ModuleNotFoundError",
        r"ModuleNotFoundError: No module named 'a_module_that_does_not_exist'",
        phase="import",
        hint=r"the worker looked in sys.path = .*install the module there.*",
    ),
    End(
        "F13 constructor",
        lambda: lp.PyClassNode(nodes.FailsInInit),
        "RuntimeError",
        r"RuntimeError: no constructor for you",
        phase="init",
    ),
    End(
        "F15 start",
        lambda: lp.PyClassNode(Endless),
        "StartTimeout",
        r"was not ready within start_timeout_s=3, and was killed",
        phase="init",
        hint=r"its log ends with the stacks of all its threads: see where it was.*",
        shown="in build_for_ever",
        exit_status=5,
        restart=QUICK,
    ),
    End("F21 run", lambda: lp.PyNode(fail), "ValueError", r"ValueError: it broke"),
    End(
        "F22 killed",
        lambda: lp.PyNode(be_killed),
        "",
        r"killed by SIGKILL, not by the launcher",
        hint=r".*peak memory was [\d.,]+ [MG]iB.*the kernel has killed no process for lack of memory.*",
        exit_status=3,
        where=PROCESSES,
    ),
    End(
        "F23 memory",
        lambda: lp.PyNode(want_too_much),
        "MemoryError",
        r"MemoryError",
        hint=r".*peak memory.* [\d.,]+ [MG]iB.*",
        exit_status=4,
    ),
    End(
        "F24 segfault",
        lambda: lp.PyNode(segfault),
        "",
        r"killed by SIGSEGV, not by the launcher",
        shown="in segfault",
        exit_status=3,
        where=PROCESSES,
    ),
    End(
        "F24 os._exit",
        lambda: lp.PyNode(os._exit, 0),
        "",
        r"exited with code 0 without saying why",
        exit_status=3,
        where=PROCESSES,
    ),
    End("F24 sys.exit", lambda: lp.PyNode(nodes.exit_with, 3), "SystemExit", r"SystemExit: 3"),
    End(
        "F25 loop",
        lambda: lp.PyNode(fail),
        "ValueError",
        r"ValueError: it broke",
        hint=r"not started again: it had 1 of the restarts .*max_restarts=1, within_s=60\)",
        restart=ONCE,
    ),
    End(
        "F25 opted out",
        lambda: lp.PyNode(opt_out),
        "launchpad.errors.DoNotRestart",
        r"launchpad.errors.DoNotRestart: there is no dataset",
        hint=r"not started again: it asked not to be started again",
        restart=ONCE,
    ),
]
CASES = [
    pytest.param(end, launch_type, id=f"{end.name}-{launch_type}")
    for end in ENDS
    for launch_type in end.where
]


@pytest.mark.parametrize(("end", "launch_type"), CASES)
def test_f12_f13_f15_f21_f22_f23_f24_f25_the_report_is_complete(end: End, launch_type: str) -> None:
    program = lp.Program("ends")
    with program.group("bad", restart=end.restart):
        program.add_node(end.node())
    running = lp.launch(program, launch_type)

    with pytest.raises(lp.ProgramFailed) as caught:
        running.wait(DEADLINE_S)

    outcome = caught.value.outcome
    assert (outcome.worker, outcome.phase, outcome.error_type) == (
        "bad-0",
        end.phase,
        end.error_type,
    )
    assert re.fullmatch(end.cause, outcome.cause), outcome.cause
    assert re.fullmatch(end.hint, outcome.hint, flags=re.S), outcome.hint
    assert running.exit_status() == end.exit_status
    report = str(caught.value)
    assert report.startswith(f"program 'ends' failed: bad-0 failed in {end.phase}")
    assert outcome.cause in report
    assert outcome.hint in report
    assert outcome.log_path in report
    assert end.shown in report


@on("test_ray", "test_kubernetes")
def test_f12_an_import_that_fails_on_a_cluster_is_named(launch_type: str) -> None:
    outcome = failure_of(single(lp.PyNode(import_it, NeedsWhatIsNotThere())), launch_type).outcome

    assert (outcome.phase, outcome.error_type) == ("import", "ModuleNotFoundError")
    assert "the worker looked in sys.path = " in outcome.hint


NOT_YET = lp.RestartPolicy(max_restarts=5, backoff=3600)
"""The first restart is at once, and the next one never comes."""


@on("test_ray", "test_kubernetes")
def test_f13_f22_f23_f24_f25_a_cluster_knows_what_attempts_died_of(launch_type: str) -> None:
    causes = {
        "init": (lp.PyClassNode(nodes.FailsInInit), "RuntimeError: no constructor for you"),
        "killed": (lp.PyNode(be_killed), "killed by SIGKILL"),
        "memory": (lp.PyNode(want_too_much), "MemoryError"),
        "segfault": (lp.PyNode(segfault), "killed by SIGSEGV"),
        "exit": (lp.PyNode(os._exit, 3), "exited with code 3 without"),
    }
    program = lp.Program("ends")
    for label, (node, _) in causes.items():
        with program.group(label, restart=NOT_YET):
            program.add_node(node)

    with lp.launch(program, launch_type) as running:
        until(lambda: {(s.state, s.attempt) for s in running.status()} == {("restarting", 2)}, 90)
        found = {status.label: status.cause for status in running.status()}

    for label, (_, cause) in causes.items():
        assert cause in found[label]
    assert "in segfault" in running.logs("segfault")
