"""Ctrl-C while somebody waits for a program, at whichever of its lines the main thread is then."""

from __future__ import annotations

import atexit
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch import script_exit, signals
from launchpad.launch.rundir import record
from launchpad.launch.signals import KeyboardInterruptHandler
from tests import nodes
from tests.helpers.programs import single
from tests.waiting import until


class Presser:
    """A trace function that presses Ctrl-C at the n-th line executed in or below a function."""

    def __init__(self, below: tuple[str, ...], at_line: int) -> None:
        self._below, self._at_line = below, at_line
        self._lines = 0
        self._is_below = False

    @property
    def has_pressed(self) -> bool:
        return self._lines >= self._at_line

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_name in self._below:
            self._is_below = event != "return"
        if event == "line" and self._is_below:
            self._lines += 1
            if self._lines == self._at_line:
                signal.raise_signal(signal.SIGINT)
        return self


@contextlib.contextmanager
def traced_by(presser: Presser) -> Iterator[None]:
    sys.settrace(presser)
    try:
        yield
    finally:
        sys.settrace(None)


def launched() -> lp.Running:
    return lp.launch(single(lp.PyClassNode(nodes.Loop)), "local_mt")


@pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])
def test_a_launch_that_is_interrupted_when_its_workers_have_begun_ends_them(
    monkeypatch: pytest.MonkeyPatch, launch_type: str
) -> None:
    def interrupted(run: object, plan: object) -> None:
        raise lp.Stopped

    monkeypatch.setattr(record, "write", interrupted)

    with pytest.raises(lp.Stopped):
        lp.launch(single(lp.PyClassNode(nodes.Loop)), launch_type)

    until(lambda: "launchpad-single" not in [t.name for t in threading.enumerate()])


def test_ctrl_c_at_any_line_of_waiting_stops_the_program() -> None:
    for line in range(1, 100):
        presser = Presser(("wait_for",), line)
        with launched() as running:
            with pytest.raises((KeyboardInterrupt, TimeoutError)) as raised, traced_by(presser):
                running.wait(0.1)

            assert presser.has_pressed is (raised.type is KeyboardInterrupt)
            assert running.is_done is presser.has_pressed
        if not presser.has_pressed:
            assert line > 5
            return


def test_a_signal_that_does_not_interrupt_the_wait_for_a_lock_is_handled_all_the_same() -> None:
    """As one that comes while the handler of another returns: here it interrupts another thread."""

    def press() -> None:
        until(lambda: signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    with launched() as running:
        presser = threading.Thread(target=press)
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            running.wait()
        presser.join()

        assert running.is_done


def test_ctrl_c_at_any_line_of_the_end_of_a_script_stops_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[int] = []
    monkeypatch.setattr(script_exit, "_exit_now", left.append)
    monkeypatch.setattr(script_exit, "_POLL_S", 0.01)
    for line in range(1, 60):
        monkeypatch.setattr(script_exit, "_exit_code", 0)
        running = launched()
        with traced_by(Presser(("_open_runs", "_check_run"), line)):
            script_exit.wait_for_all()
        atexit.unregister(script_exit._exit)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests go on

        assert running.is_done
        assert script_exit._exit_code == 130
        assert left == []


def test_the_first_asks_the_second_forces_and_the_third_raises_at_once() -> None:
    asked: list[bool | str] = []

    def press_and_go_on(times: int, *, is_stopping: bool = False) -> None:
        with KeyboardInterruptHandler(asked.append, is_stopping=is_stopping):
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            asked.append("goes on")

    for times, is_stopping in ((1, False), (3, False), (1, True)):
        with pytest.raises(KeyboardInterrupt):
            press_and_go_on(times, is_stopping=is_stopping)

    assert asked == [False, "goes on", False, True, True, "goes on"]


@pytest.mark.parametrize(
    ("number", "error", "code"),
    [
        (signal.SIGINT, KeyboardInterrupt, None),
        (signal.SIGTERM, SystemExit, 143),
        (signal.SIGHUP, SystemExit, 129),
    ],
)
def test_each_signal_that_ends_a_script_asks_the_outermost_and_raises_its_exit_code(
    number: signal.Signals, error: type[BaseException], code: int | None
) -> None:
    outer: list[bool] = []
    inner: list[bool] = []
    before = signal.getsignal(number)

    with (
        pytest.raises(error) as raised,
        KeyboardInterruptHandler(outer.append),
        KeyboardInterruptHandler(inner.append),
    ):
        signal.raise_signal(number)

    assert (outer, inner) == ([False], [])
    assert getattr(raised.value, "code", None) == code
    assert signal.getsignal(number) == before


def test_signals_that_another_handles_or_ignores_or_in_another_thread_are_left_alone() -> None:
    heard: list[int] = []
    asked: list[bool] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}

    def wait() -> None:
        with KeyboardInterruptHandler(asked.append):
            assert signal.getsignal(signal.SIGINT) is before[signal.SIGINT]
            heard.append(0)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(wait).result()
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        signals.watch(lambda number, frame: asked.append(True))
        with KeyboardInterruptHandler(asked.append):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGHUP)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert (heard, asked) == ([0, signal.SIGINT], [])


def test_a_script_that_waits_no_longer_leaves_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []

    def press_once_more(running: lp.Running) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(script_exit, "_exit_now", left.append)
    monkeypatch.setattr(script_exit, "_check_run", press_once_more)
    monkeypatch.setattr(script_exit, "_exit_code", 0)
    with launched() as running:
        assert running._run.runtime.exists()

        script_exit.wait_for_all()

        assert not running._run.runtime.exists()
    atexit.unregister(script_exit._exit)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert left == [130]
