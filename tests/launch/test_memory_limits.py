"""Limits of a worker's memory: what fails at them, how it is said, and what has none."""

from __future__ import annotations

import contextlib
import errno
import resource
import threading
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.worker import error_report
from launchpad.outcome import Outcome
from tests.helpers.programs import failure_of, single
from tests.waiting import until

DEADLINE_S = 30


def failure_within(memory: str, node: Any) -> Outcome:
    """Return how a program of this node fails with this limit of memory."""
    return failure_of(single(node, "w", resources=lp.Resources(memory=memory))).outcome


_ALL: list[bytearray] = []


def take_all_memory() -> None:
    """Take all memory, to the last bytes, and keep it."""
    for exponent in range(26, 3, -1):
        with contextlib.suppress(MemoryError):
            while True:
                _ALL.append(bytearray(1 << exponent))
    raise MemoryError("nothing is left")


def test_more_memory_than_its_limit_is_an_out_of_memory_failure_with_the_limit_to_the_last_byte() -> (
    None
):
    failed = failure_within("200MiB", lp.PyNode(take_all_memory))

    assert (failed.worker, failed.phase, failed.out_of_memory) == ("w-0", "run", True)
    assert failed.error_type == "MemoryError"
    assert "take_all_memory" in failed.traceback
    assert "Resources(memory=…), or `ulimit -d`, allows it 200 MiB" in failed.hint


def test_a_limit_that_is_less_than_an_empty_worker_needs_is_said_to_be_the_memory() -> None:
    assert failure_within("1MiB", lp.PyNode(take_all_memory)).out_of_memory


def from_another(error: Exception, cause: Exception | None, context: Exception) -> Exception:
    """An error that was raised from one while another was handled."""
    error.__cause__ = cause
    error.__context__ = context
    return error


class Strange(ImportError):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "always", "where_it_is_limited"),
    [
        (MemoryError(), True, True),
        (OSError(errno.ENOMEM, "Cannot allocate memory", "/a/folder"), True, True),
        (OSError(errno.ENOENT, "No such file or directory"), False, False),
        (ImportError("/x/_umath.so: cannot map zero-fill pages"), True, True),
        (OSError("libcrypto.so.3: cannot map zero-fill pages"), True, True),
        (ImportError("/x/_umath.so: failed to map segment from shared object"), False, True),
        (RuntimeError("can't start new thread"), False, True),
        (RuntimeError("something else"), False, False),
        (ImportError("No module named 'umath'"), False, False),
        (Strange(), False, False),
        (from_another(ImportError("read this"), MemoryError(), MemoryError()), True, True),
        (from_another(ValueError("no"), ZeroDivisionError(), ZeroDivisionError()), False, False),
        (from_another(ValueError("later"), None, MemoryError()), False, False),
        (ExceptionGroup("two", [ValueError(), MemoryError()]), True, True),
        (ExceptionGroup("two", [ValueError(), ValueError()]), False, False),
    ],
)
def test_want_of_memory_is_known_by_all_its_names(
    error: BaseException, always: bool, where_it_is_limited: bool
) -> None:
    assert error_report.is_out_of_memory(error) is always
    assert error_report.is_out_of_memory(error, is_limited=True) is where_it_is_limited


class Stack:
    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        """Threads, of which each may have 64 MiB, until there is no more."""
        threading.stack_size(64 << 20)
        while True:
            thread = threading.Thread(target=lp.wait_for_stop, daemon=True)
            thread.start()
            self._threads.append(thread)


def test_threads_that_find_no_memory_for_their_stacks_are_a_want_of_memory() -> None:
    failed = failure_within("400MiB", lp.PyClassNode(Stack))

    assert failed.out_of_memory
    assert "allows it 400 MiB, with the stacks of its threads" in failed.hint


class Hungry:
    def take(self) -> None:
        raise MemoryError("for a call")


def call(hungry: Any) -> None:
    hungry.take()


def test_who_had_no_memory_for_a_call_is_named_and_not_the_caller() -> None:
    program = lp.Program("p")
    server = program.add_node(lp.CourierNode(Hungry), label="server")
    program.add_node(lp.PyNode(call, server), label="caller")

    failed = failure_of(program).outcome

    assert (failed.worker, failed.hint) == ("caller-0", "server-0 had no memory for a call")


class Saves:
    def is_there(self) -> bool:
        return True

    def save(self) -> None:
        print(resource.getrlimit(resource.RLIMIT_DATA)[0], flush=True)


def fail_once(server: Saves) -> None:
    """Fails when there is a server that can save; one that has not begun has nothing to save."""
    if lp.current().attempt == 1 and server.is_there():
        raise ValueError("once")


def test_what_is_saved_for_a_restart_is_saved_within_the_limit_of_memory_and_others_have_none() -> (
    None
):
    program = lp.Program("p")
    policy = lp.RestartPolicy(scope="group", backoff=0)
    with program.group("w", resources=lp.Resources(memory="2GiB"), restart=policy):
        server = program.add_node(lp.CourierNode(Saves))
        program.add_node(lp.PyNode(fail_once, server))
    free = program.add_node(lp.CourierNode(Saves), label="free")
    program.add_node(lp.PyNode(lambda server: server.save(), free), label="caller")

    with lp.launch(program, "test_mp") as running:
        until(lambda: running.logs("w-0") == f"{2 << 30}\n")
        until(lambda: running.logs("free"))

    assert running.logs("free") == f"{resource.getrlimit(resource.RLIMIT_DATA)[0]}\n"
