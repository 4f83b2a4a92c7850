"""F12, F13, F15, F20 to F25: what the report of a failed program says of each kind of end, in full."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import launchpad as lp
from tests import nodes

DEADLINE_S = 60
BOTH = ("test_mt", "test_mp")
PROCESSES = ("test_mp", "test_ray", "test_kubernetes")
ALL = ("test_mt", *PROCESSES)


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


def leave_without_a_word() -> None:
    os._exit(3)


def fail() -> None:
    raise ValueError("it broke")


def opt_out() -> None:
    raise lp.DoNotRestart("there is no dataset")


@dataclass(frozen=True)
class End:
    """A way to end badly, and what is said of it. `cause` and `hint` are patterns for the whole text."""

    name: str
    node: Callable[[], lp.Node[Any]]
    phase: str
    error_type: str
    cause: str
    hint: str
    exit_status: int
    where: tuple[str, ...] = BOTH
    restart: lp.RestartPolicy | None = None


ONCE = lp.RestartPolicy(max_restarts=1, backoff=0)
QUICK = lp.RestartPolicy(max_restarts=0, start_timeout_s=3)
ENDS = [
    End(
        "F12 import",
        lambda: lp.PyNode(import_it, NeedsWhatIsNotThere()),
        "import",
        "ModuleNotFoundError",
        r"ModuleNotFoundError: No module named 'a_module_that_does_not_exist'",
        r"the worker looked in sys.path = .*install the module there.*",
        1,
        ALL,
    ),
    End(
        "F13 constructor",
        lambda: lp.PyClassNode(nodes.FailsInInit),
        "init",
        "RuntimeError",
        r"RuntimeError: no constructor for you",
        "",
        1,
        ALL,
    ),
    End(
        "F15 start",
        lambda: lp.PyClassNode(Endless),
        "init",
        "StartTimeout",
        r"was not ready within start_timeout_s=3, and was killed",
        r"its log ends with the stacks of all its threads: see where it was.*",
        5,
        restart=QUICK,
    ),
    End("F21 run", lambda: lp.PyNode(fail), "run", "ValueError", r"ValueError: it broke", "", 1),
    End(
        "F22 killed",
        lambda: lp.PyNode(be_killed),
        "run",
        "",
        r"killed by SIGKILL, not by the launcher",
        r".*peak memory was [\d,]+ MiB.*",
        3,
        PROCESSES,
    ),
    End(
        "F23 memory",
        lambda: lp.PyNode(want_too_much),
        "run",
        "MemoryError",
        r"MemoryError",
        r".*peak memory.* [\d,]+ MiB.*",
        4,
        ALL,
    ),
    End(
        "F24 segfault",
        lambda: lp.PyNode(segfault),
        "run",
        "",
        r"killed by SIGSEGV, not by the launcher",
        "",
        3,
        PROCESSES,
    ),
    End(
        "F24 os._exit",
        lambda: lp.PyNode(leave_without_a_word),
        "run",
        "",
        r"exited with code 3 without saying why",
        "",
        3,
        PROCESSES,
    ),
    End(
        "F24 sys.exit",
        lambda: lp.PyNode(nodes.exit_with, 3),
        "run",
        "SystemExit",
        r"SystemExit: 3",
        "",
        1,
    ),
    End(
        "F25 loop",
        lambda: lp.PyNode(fail),
        "run",
        "ValueError",
        r"ValueError: it broke",
        r"not started again: it had 1 of the restarts .*max_restarts=1, within_s=60\)",
        1,
        restart=ONCE,
    ),
    End(
        "F25 opted out",
        lambda: lp.PyNode(opt_out),
        "run",
        "launchpad.errors.DoNotRestart",
        r"launchpad.errors.DoNotRestart: there is no dataset",
        r"not started again: it asked not to be started again",
        1,
        restart=ONCE,
    ),
]
CASES = [
    pytest.param(end, launch_type, id=f"{end.name}-{launch_type}")
    for end in ENDS
    for launch_type in end.where
]


@pytest.mark.parametrize(("end", "launch_type"), CASES)
def test_f12_f13_f15_f21_f22_f23_f24_f25_the_report_names_worker_phase_type_cause_and_hint(
    end: End, launch_type: str
) -> None:
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
