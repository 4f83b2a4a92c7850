"""Log files: one for each attempt, turned over by size, nothing lost."""

from __future__ import annotations

import logging.handlers
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.logs import log_files
from launchpad.launch.logs.rotation import Rotation
from launchpad.launch.logs.tail import Tail
from tests.helpers import printing_nodes
from tests.helpers.programs import single

DEADLINE_S = 30.0


@pytest.fixture(autouse=True)
def logs_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))


def run(
    function: Callable[..., None],
    *arguments: object,
    launch_type: str = "test_mt",
    retries: int = 0,
) -> lp.Running:
    """A program of this function, as the worker of a group `printer`, that has ended."""
    node: lp.Node[Any] = lp.PyNode(function, *arguments)
    if retries:
        node = lp.MultiProcessingColocation([node], num_retries_on_failure=retries)
    return lp.testing.run(single(node, "printer"), DEADLINE_S, launch_type)


def names_in(running: lp.Running) -> set[str]:
    return {path.name for path in running.log_directory.iterdir() if path.name.startswith("pri")}


# One for each attempt.


def test_each_attempt_has_a_log_of_its_own() -> None:
    running = run(printing_nodes.fails_at_first, launch_type="test_mp", retries=1)

    assert names_in(running) == {"printer-0.0.log", "printer-0.0.attempt_2.log"}
    (status,) = running.status()
    assert Path(status.log_path).name == "printer-0.0.attempt_2.log"
    assert Path(status.log_path).read_text() == "this is attempt 2\n"
    text = running.logs("printer")
    assert text.index("attempt 1") < text.index("ValueError: once") < text.index("attempt 2")


def test_sound_33_what_a_thread_writes_past_print_is_in_its_log_too() -> None:
    running = run(printing_nodes.by_every_stream)

    assert running.logs("printer").splitlines() == [
        f"{name} {what}"
        for name in ("stdout", "stderr")
        for what in ("lines together", "bytes", "lines of bytes")
    ]


@pytest.mark.parametrize(
    ("launch_type", "encoding"),
    [("test_mt", ""), ("test_mp", "ascii:strict"), ("test_mp", "utf-16")],
)
def test_sound_pass_2_logs_are_utf_8_whatever_the_locale_and_take_every_character(
    launch_type: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)

    running = run(printing_nodes.odd_characters, launch_type=launch_type)

    assert running.logs("printer") == "caf\u00e9 \\udcff\n" * 2


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_sound_33_a_handler_of_logging_that_was_made_before_writes_to_the_log_of_the_worker(
    stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = logging.StreamHandler(getattr(sys, stream))
    outer = logging.handlers.MemoryHandler(1, target=handler)  # as absl's, it has another within
    logger = logging.getLogger("early")
    logger.addHandler(outer)
    try:
        running = run(printing_nodes.by_early_logger)
        logger.warning("by the script")
    finally:
        logger.removeHandler(outer)
        outer.close()

    assert running.logs("printer") == "by a logger\n"
    assert "".join(capsys.readouterr()) == "by the script\n"
    assert handler.stream is getattr(sys, stream)


@pytest.mark.parametrize("are_closed", [True, False])
def test_sound_33_streams_that_are_one_or_closed_keep_no_worker_from_its_log(
    are_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = None if are_closed else sys.stdout
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", one)
        patch.setattr(sys, "stderr", one)
        running = run(printing_nodes.by_every_stream)

    assert len(running.logs("printer").splitlines()) == 6


def test_no_worker_has_the_name_of_another_ones_attempt() -> None:
    paths = log_files.LogFiles(Path("/logs"))

    names = {paths.path(worker, n) for worker in ("a-0", "a-0.1", "a-0.2") for n in (1, 2)}

    assert len(names) == 6


# Turned over by size, nothing lost.


def small_logs(monkeypatch: pytest.MonkeyPatch, max_mb: float, n_files: int) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOG_MAX_MB", str(max_mb))
    monkeypatch.setenv("LAUNCHPAD_LOG_FILES", str(n_files))


@pytest.mark.parametrize("unbuffered", ["", "1"])  # then print() writes a line in two pieces
def test_it_is_turned_over_under_c_code_and_subprocesses_too(
    unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_logs(monkeypatch, 0.005, 1000)
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)

    running = run(printing_nodes.in_all_ways, 500, launch_type="test_mp")

    lines = running.logs("printer").splitlines()
    n_rounds = sum(line.startswith("print") for line in lines)
    assert n_rounds >= 500
    assert len(names_in(running)) > 1
    for way in ("print", "logging", "one", "two"):
        assert [line for line in lines if line.startswith(way)] == [
            f"{way} {i}" for i in range(n_rounds)
        ]
    assert [line for line in lines if line.startswith("child")] == [
        f"child {i}" for i in range(0, n_rounds, 100)
    ]


@pytest.mark.parametrize("files", [1, 2, 3, 12])
def test_sound_05_no_part_is_deleted_before_there_are_as_many_as_allowed(
    files: int, tmp_path: Path
) -> None:
    log = tmp_path / "a-0.log"
    log.touch()

    for number in range(1, 20):
        os.close(Rotation(files=files).rotate(log))

        kept = [part.name for part in log_files.parts(log)]
        first = max(1, number + 2 - files)
        assert kept == [*(f"a-0.log.{n}" for n in range(first, number + 1)), "a-0.log"]
        assert ("older parts have been deleted ---" in log.read_text()) is (first > 1)


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_sound_05_every_line_is_kept_in_its_order_or_counted_among_the_deleted_ones(
    launch_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_logs(monkeypatch, 0.02, 3)

    running = run(printing_nodes.until_turned_over, 5, launch_type=launch_type)

    log = running.log_directory / "printer-0.log"
    *older, newest = log_files.parts(log)
    assert newest == log
    assert len(older) == 2
    header = re.fullmatch(
        rf"--- launchpad: what came before is in {older[-1].name}; still older parts have been deleted:"
        r" ([\d,]+) lines, ([\d,]+) bytes ---",
        log.read_text().split("\n")[0],
    )
    assert header
    deleted, n_bytes = (int(number.replace(",", "")) for number in header.groups())
    lines = running.logs("printer").split()
    assert lines == [f"{i:06d}" for i in range(deleted, deleted + len(lines))]
    assert n_bytes == 7 * deleted


def test_what_user_code_has_sent_elsewhere_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_logs(monkeypatch, 0.01, 1000)
    own = tmp_path / "own"

    running = run(printing_nodes.moves_its_output, str(own), launch_type="test_mp")

    assert len(names_in(running)) > 1
    assert own.read_text() == "elsewhere\n"


def test_a_signal_handler_may_print_while_the_main_thread_does() -> None:
    running = run(printing_nodes.prints_in_a_signal_handler, 20_000, launch_type="test_mp")

    text = running.logs("printer")  # a handler may come between a text and the end of its line
    (handled,) = re.findall(r"handled (\d+)", text)
    assert re.findall(r"main (\d+)", text) == [str(i) for i in range(20_000)]
    assert len(set(re.findall(r"handler (\d+)", text))) == int(handled)
    assert int(handled) > 10


def test_a_report_has_the_last_lines_also_when_the_log_was_just_turned_over(
    tmp_path: Path,
) -> None:
    log = tmp_path / "a-0.log"
    log.write_text("".join(f"{i}\n" for i in range(30)))
    os.close(Rotation().rotate(log))
    with log.open("a") as file:
        file.write("last\n")

    assert log_files.last_lines(log, 5) == ("26", "27", "28", "29", "last")


@pytest.mark.parametrize("seed", range(10))
def test_a_tail_reads_every_line_once_whenever_it_looks_and_the_log_is_turned_over(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    log, rotation, tail = tmp_path / "a-0.log", Rotation(files=1000), Tail(tmp_path / "a-0.log")
    written, read, fd = 0, list[bytes](), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    for step in range(300):
        if step == 200:
            os.close(fd)
            log = tmp_path / "a-0.attempt_2.log"
            tail.follow(log)
            fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        match chance.choice(["write", "write", "turn", "look", "look"]):
            case "write":
                for _ in range(chance.randrange(5)):
                    half, rest = f"{written:06d}\n".encode()[:3], f"{written:06d}\n".encode()[3:]
                    os.write(fd, half)
                    if chance.random() < 0.3:
                        fd = turned(rotation, log, fd)
                    os.write(fd, rest)
                    written += 1
            case "turn":
                fd = turned(rotation, log, fd)
            case "look":
                read += tail.lines()
    os.close(fd)
    while tail.has_more():
        read += tail.lines()

    assert read == [f"{i:06d}".encode() for i in range(written)]


def turned(rotation: Rotation, log: Path, fd: int) -> int:
    os.close(fd)
    return rotation.rotate(log)


def test_a_tail_goes_on_with_what_a_subprocess_still_writes_to_the_part_before(
    tmp_path: Path,
) -> None:
    log, tail = tmp_path / "a-0.log", Tail(tmp_path / "a-0.log")
    old = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(old, b"one\n")
    assert tail.lines() == [b"one"]

    os.close(Rotation().rotate(log))
    tail.lines()
    os.write(old, b"two\n")
    os.close(old)

    assert tail.lines() == [b"two"]


def test_a_tail_says_so_when_what_it_has_not_read_was_deleted(tmp_path: Path) -> None:
    log, tail = tmp_path / "a-0.log", Tail(tmp_path / "a-0.log")
    log.write_bytes(b"one\n")
    assert tail.lines() == [b"one"]

    for text in (b"two\n", b"three\n", b"four\n"):
        fd = Rotation(files=2).rotate(log)
        os.write(fd, text)
        os.close(fd)

    first, *others = tail.lines() + tail.lines()
    assert b"deleted before it could be shown" in first
    assert others == [b"three", b"four"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LAUNCHPAD_LOG_MAX_MB", "many"),
        ("LAUNCHPAD_LOG_MAX_MB", "-1"),
        ("LAUNCHPAD_LOG_FILES", "0"),
        ("LAUNCHPAD_LOG_DAYS", "a few"),
    ],
)
def test_a_limit_that_is_none_is_refused_at_launch_with_its_name(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(lp.LaunchError, match=f"{variable}={value}: must be"):
        run(print)
