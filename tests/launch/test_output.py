"""What the terminal shows of the workers' logs."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launchpad.launch.output.printer import Output
from launchpad.launch.rundir.directory import RunDirectory

DEADLINE_S = 30.0


class Screen(io.StringIO):
    """A stream that can be waited for."""

    def __init__(self, is_terminal: bool = False) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self._changed = threading.Condition()

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        with self._changed:
            self._changed.notify_all()
            return super().write(text)

    def wait_for(self, text: str) -> str:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.getvalue(), DEADLINE_S)
        return self.getvalue()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDirectory]:
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path))
    directory = RunDirectory.create("output")
    yield directory
    directory.remove()


def append(run: RunDirectory, worker: str, data: bytes) -> None:
    with run.log(worker).open("ab") as file:
        file.write(data)


def shown(run: RunDirectory, *logs: tuple[str, bytes], is_terminal: bool = False) -> str:
    """All that is printed of these logs."""
    screen = Screen(is_terminal)
    output = Output(run, [worker for worker, _ in logs], screen)
    for worker, data in logs:
        append(run, worker, data)
    output.open()
    output.close()
    return screen.getvalue()


def test_each_line_has_the_padded_name_of_its_worker_in_front_also_one_that_nothing_ended(
    run: RunDirectory,
) -> None:
    text = shown(run, ("learner-0", b"one\ntwo\n"), ("replay-server-0", b"three"))

    assert text.splitlines() == [
        "learner-0       | one",
        "learner-0       | two",
        "replay-server-0 | three",
    ]


def test_lines_are_printed_while_the_worker_runs_and_complete_ones_only(run: RunDirectory) -> None:
    screen = Screen()
    output = Output(run, ["actor-0"], screen)
    output.open()

    append(run, "actor-0", b"first\nsec")
    early = screen.wait_for("first\n")
    append(run, "actor-0", b"ond\n")
    late = screen.wait_for("second\n")
    output.close()

    assert "sec" not in early
    assert late.endswith("actor-0   | second\n")


def test_a_note_comes_after_what_its_worker_had_printed(run: RunDirectory) -> None:
    screen = Screen()
    output = Output(run, ["actor-0"], screen)
    append(run, "actor-0", b"last words\n")
    output.note("actor-0 failed in run\nValueError: boom")
    output.open()
    output.close()

    assert screen.getvalue().splitlines() == [
        "actor-0   | last words",
        "launchpad | actor-0 failed in run",
        "launchpad | ValueError: boom",
    ]


def test_on_a_terminal_each_worker_has_a_colour_of_its_own_but_where_none_are_wanted(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = shown(run, ("a-0", b"[bold]x[/bold]\n"), ("b-0", b"y\n"), is_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(run, ("c-0", b"x\n"), is_terminal=True)

    codes = re.findall("\x1b\\[(\\d+)m[ab]-0", text)
    assert len(set(codes)) == 2
    assert "[bold]x[/bold]" in text
    assert "\x1b[3" not in plain


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (
            b"\x1b[2J\x1b]0;title\x07\x1b[31mred\ttab\x00\n",
            "\\x1b[2J\\x1b]0;title\\x07\x1b[31mred\ttab\\x00\x1b[0m",
        ),
        (b"caf\xe9 \xff\n", "caf\ufffd \ufffd"),
        (b"10 %\r50 %\r100 %\r\n", "100 %"),
    ],
    ids=["control characters", "no text", "a progress bar"],
)
def test_what_a_worker_prints_cannot_take_over_the_terminal(
    run: RunDirectory, printed: bytes, line: str
) -> None:
    assert shown(run, ("a-0", printed)) == f"a-0       | {line}\n"


def test_a_stream_that_knows_no_unicode_gets_question_marks(run: RunDirectory) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    append(run, "a-0", "naïve\n".encode())
    output = Output(run, ["a-0"], stream)
    output.open()
    output.close()

    stream.seek(0)
    assert stream.read() == "a-0       | na?ve\n"


def test_a_huge_line_and_a_huge_log_arrive_whole(run: RunDirectory) -> None:
    line = b"x" * 1_000_000
    text = shown(run, ("a-0", line + b"\n"), ("b-0", b"y\n" * 500_000))

    assert f"a-0       | {line.decode()}\n" in text
    assert text.count("b-0       | y\n") == 500_000


def test_a_log_that_was_emptied_is_read_from_its_start_and_notes_are_printed_at_once(
    run: RunDirectory,
) -> None:
    screen = Screen()
    output = Output(run, ["a-0"], screen)
    output.open()
    append(run, "a-0", b"a long first line\n")
    screen.wait_for("first line\n")

    run.log("a-0").write_bytes(b"")
    append(run, "a-0", b"again\n")
    screen.wait_for("again\n")
    output.note("a note, at once")
    screen.wait_for("launchpad | a note, at once\n")
    output.close()


def test_many_workers_are_followed_without_a_descriptor_each(run: RunDirectory) -> None:
    names = [f"w-{i}" for i in range(128)]
    for name in names:
        append(run, name, b"begun\n")
    screen = Screen()
    before = len(os.listdir("/dev/fd"))
    output = Output(run, names, screen)
    output.open()

    screen.wait_for("w-127     | begun\n")
    assert len(os.listdir("/dev/fd")) <= before + 1
    output.close()
    assert screen.getvalue().count("begun") == 128


@pytest.mark.parametrize("error", [BrokenPipeError, OSError, ValueError])
def test_when_the_terminal_is_gone_printing_ends_and_nothing_spins(
    run: RunDirectory, error: type[Exception]
) -> None:
    class Gone(Screen):
        tries = 0

        def write(self, text: str) -> int:
            self.tries += 1
            raise error("gone")

    stream = Gone()
    output = Output(run, ["a-0"], stream)
    append(run, "a-0", b"x\n")
    output.open()
    thread: Any = output._thread
    thread.join(DEADLINE_S)
    append(run, "a-0", b"y\n")
    output.close()

    assert not thread.is_alive()
    assert stream.tries == 1


def test_attempts_are_shown_one_after_the_other(run: RunDirectory) -> None:
    screen = Screen()
    output = Output(run, ["a-0"], screen)
    append(run, "a-0", b"first\nhalf")
    output.follow("a-0", 1)
    output.follow("a-0", 2)
    run.log("a-0", 2).write_bytes(b"second\n")
    output.open()
    output.close()

    assert screen.getvalue() == "a-0       | first\na-0       | half\na-0       | second\n"


def test_a_terminal_that_falls_behind_is_told_what_it_has_not_seen(run: RunDirectory) -> None:
    seen = threading.Event()
    may_go_on = threading.Event()

    class Slow(Screen):
        def write(self, text: str) -> int:
            seen.set()
            assert may_go_on.wait(DEADLINE_S)
            return super().write(text)

    screen = Slow(is_terminal=True)
    output = Output(run, ["a-0"], screen)
    append(run, "a-0", b"0 of a million lines\n")
    output.open()
    assert seen.wait(DEADLINE_S)
    count = 1_000_000
    append(run, "a-0", b"".join(b"%d of a million lines\n" % i for i in range(1, count)))
    may_go_on.set()
    output.close()

    shown = screen.getvalue()
    (skipped,) = re.findall(r"([\d,]+) lines of a-0 \([\d.,]+ MiB\) are not shown", shown)
    lines = re.findall(r"\d+(?= of a million)", shown)
    assert len(lines) + int(skipped.replace(",", "")) == count
    assert lines[-1] == str(count - 1)
