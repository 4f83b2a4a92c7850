"""`launchpad attach`: pdb in a worker, through a pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

import launchpad as lp
from launchpad.errors import DefinitionError
from tests import nodes
from tests.waiting import pause, pid_of, until

ROOT = Path(__file__).parents[2]
PROMPT = r"\(Pdb\) "
ENDED = (
    r"attempt 1 of player-0 has ended; .*killed by SIGKILL"
    r"|debugged-\S+ has ended in the meantime|now: failed"
)
both = pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
Attach = Callable[..., "pexpect.spawn[str]"]


def play(counter: nodes.Counter) -> None:
    """Adds one, and looks whether it is to stop; nothing else."""
    number = 0
    while not lp.wait_for_stop(0.01):
        number += 1
        lp.heartbeat()
        counter.add(1)


def fail(counter: nodes.Counter) -> None:
    broken = counter.add(41)
    raise ValueError(f"boom {broken}")


def stop_at_breakpoints(counter: nodes.Counter) -> None:
    for step in range(3):
        breakpoint()
        counter.add(10**step)
    lp.wait_for_stop()


def launched(
    launch_type: str,
    function: Callable[..., None],
    heartbeat_s: float | None = None,
    **options: object,
) -> lp.Running:
    program = lp.Program("debugged")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    with program.group("player", restart=lp.RestartPolicy(mode="never", heartbeat_s=heartbeat_s)):
        program.add_node(lp.PyNode(function, counter))
    return lp.launch(program, launch_type, **options)  # type: ignore[arg-type]


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attach]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TERM", "dumb")  # readline would send sequences
    terminals: list[pexpect.spawn[str]] = []

    def start(*arguments: str) -> pexpect.spawn[str]:
        command = ["-m", "launchpad", "attach", "debugged", *arguments]
        terminals.append(pexpect.spawn(sys.executable, command, encoding="utf-8", timeout=30))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close(force=True)


def says(terminal: pexpect.spawn[str], line: str) -> str:
    """What pdb says to a line."""
    terminal.sendline(line)
    terminal.expect(PROMPT)
    return str(terminal.before)


def rest_of(terminal: pexpect.spawn[str], exit_status: int) -> str:
    """What is shown until the command has ended, in one line."""
    terminal.expect(pexpect.EOF)
    shown = " ".join(str(terminal.before).split())
    terminal.close()
    assert terminal.exitstatus == exit_status, shown
    return shown


def evaluates_for_long(terminal: pexpect.spawn[str]) -> None:
    terminal.sendline("print('be' + 'gan') or __import__('time').sleep(1000)")
    terminal.expect("began")  # printed by pdb: the terminal's own echo shows the line too


def debugged(running: lp.Running) -> str:
    return next(row.debugged for row in running.status() if row.worker == "player-0")


def goes_on(running: lp.Running) -> bool:
    """Whether the player counts on, out of the debugger, and has never been started again."""
    until(lambda: not debugged(running))
    counter = running.client("counter")
    before = counter.add(0)
    until(lambda: counter.add(0) > before)
    return [(row.state, row.attempt) for row in running.status()] == [("running", 1)] * 2


@pytest.mark.slow
def test_pdb_does_not_run_a_pdbrc_of_the_directory_that_the_worker_is_in(
    attach: Attach, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".pdbrc").write_text("!open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    with launched("test_mp", play) as running:
        until(lambda: running.client("counter").add(0))
        terminal = attach("player-0")
        terminal.expect(PROMPT)
        assert str(tmp_path) in says(terminal, "p __import__('os').getcwd()")
        terminal.sendline("q")
        rest_of(terminal, 0)

    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_breakpoint_in_a_process_waits_for_a_terminal_and_the_next_one_for_its_command(
    attach: Attach, capfd: pytest.CaptureFixture[str]
) -> None:
    with launched("local_mp", stop_at_breakpoints) as running:
        until(lambda: "waits for `attach`" in debugged(running))
        terminal = attach("player-0")
        terminal.expect(PROMPT)
        assert "counter.add(10**step)" in says(terminal, "list")
        assert "0" in says(terminal, "p step")
        terminal.sendline("c")
        terminal.expect(PROMPT)
        assert "1" in says(terminal, "p step")
        terminal.sendline("q")
        rest_of(terminal, 0)
        until(lambda: "waits for `attach`" in debugged(running))
        assert running.client("counter").add(0) == 11

    assert running.exit_status() == 0
    said = capfd.readouterr().out
    line = stop_at_breakpoints.__code__.co_firstlineno + 2
    place = f"stop_at_breakpoints ({__file__}, line {line})"
    assert f"player-0 is at breakpoint() in {place}" in said
    assert f"python -m launchpad attach {running.run_id} player-0" in said


@pytest.mark.slow
def test_a_process_stands_in_pdb_is_stepped_and_goes_on_when_left(attach: Attach) -> None:
    line_that_calls = f"{__file__}:{play.__code__.co_firstlineno + 6}"
    with launched("test_mp", play, heartbeat_s=2) as running:
        until(lambda: running.client("counter").add(0))
        error = rest_of(attach("player-0", "--thread", "nobody"), 1)
        assert "has no thread 'nobody'; it has MainThread" in error
        terminal = attach("player-0")
        terminal.expect(r"test_attach.py\(\d+\)play\(\)")  # at its own line, wherever that waits
        terminal.expect(PROMPT)
        assert "'player-0'" in says(terminal, "p lp.current().name")
        says(terminal, f"tbreak {line_that_calls}")
        assert "counter.add(1)" in says(terminal, "c")
        assert "while not" in says(terminal, "n")
        assert "hello" in says(terminal, "print('hel' + 'lo')")
        says(terminal, "__import__('time').sleep(2.5)")  # longer than a heartbeat may take
        assert debugged(running) == "in pdb"
        assert "another terminal" in rest_of(attach("player-0"), 1)

        terminal.sendline("c")
        counted = running.client("counter").add(0)
        until(lambda: running.client("counter").add(0) > counted)
        terminal.sendintr()
        terminal.expect(PROMPT)
        evaluates_for_long(terminal)
        terminal.sendintr()
        terminal.expect(r"\*\*\* KeyboardInterrupt")
        terminal.expect(PROMPT)
        terminal.sendline("q")
        rest_of(terminal, 0)
        assert goes_on(running)

        lost = attach("player-0")
        lost.expect(PROMPT)
        says(lost, f"b {line_that_calls}")
        lost.kill(signal.SIGKILL)
        assert goes_on(running)


@both
@pytest.mark.slow
def test_one_that_has_failed_waits_and_then_fails(launch_type: str, attach: Attach) -> None:
    running = launched(launch_type, fail, heartbeat_s=3, pdb=True)
    until(lambda: debugged(running) == "failed: ValueError: boom 41; waits for `attach`")
    assert running.client("counter").add(0) == 41  # the others go on
    lost = attach("player-0")
    lost.expect(PROMPT)
    lost.kill(signal.SIGKILL)
    until(lambda: debugged(running).endswith("waits for `attach`"))

    terminal = attach("player-0")
    terminal.expect("ValueError: boom 41")
    terminal.expect(PROMPT)
    assert "42" in says(terminal, "p broken + 1")
    terminal.sendeof()
    rest_of(terminal, 0)

    with pytest.raises(lp.ProgramFailed, match="ValueError: boom 41"):
        running.wait()


@pytest.mark.slow
def test_a_stop_ends_the_session_and_what_it_evaluates(attach: Attach) -> None:
    with launched("test_mp", play) as running:
        terminal = attach("player-0")
        terminal.expect(PROMPT)
        evaluates_for_long(terminal)

        running.stop()

        assert "player-0 stops" in rest_of(terminal, 0)
        assert [row.state for row in running.status()] == ["stopped", "stopped"]


@pytest.mark.slow
def test_it_is_said_how_a_worker_has_ended_that_is_killed_while_it_is_attached_to(
    attach: Attach,
) -> None:
    with contextlib.suppress(lp.ProgramFailed), launched("test_mp", play) as running:
        terminal = attach("player-0")
        terminal.expect(PROMPT)

        os.kill(pid_of(running, "player-0"), signal.SIGKILL)

        said = rest_of(terminal, 0)
    assert re.search(ENDED, said), said


@pytest.mark.slow
def test_it_is_said_at_once_that_a_worker_ends_before_it_can_be_attached_to(
    attach: Attach,
) -> None:
    with contextlib.suppress(lp.ProgramFailed), launched("test_mp", play) as running:
        pid = pid_of(running, "player-0")
        pause(pid)  # so that it cannot answer
        terminal = attach("player-0")
        folder = Path(running._run.runtime)
        until(lambda: list(folder.glob("a-*.socket")))

        os.kill(pid, signal.SIGKILL)

        said = rest_of(terminal, 1)
    assert re.search(ENDED, said), said


@pytest.mark.slow
def test_a_stop_ends_the_wait_of_one_that_has_failed() -> None:
    running = launched("test_mp", fail, pdb=True)
    until(lambda: debugged(running))

    with pytest.raises(lp.ProgramFailed, match="boom 41"):
        running.stop_and_wait()


@pytest.mark.slow
def test_a_thread_is_interrupted_since_python_3_12_and_refused_before(attach: Attach) -> None:
    with launched("test_mt", play) as running:
        terminal = attach("player-0")
        if sys.version_info < (3, 12):
            assert "launch with local_mp" in rest_of(terminal, 1)
        else:
            terminal.expect(r"test_attach.py\(\d+\)play\(\)")
            terminal.expect(PROMPT)
            assert "'player-0'" in says(terminal, "p lp.current().name")
            terminal.sendline("q")
            rest_of(terminal, 0)
        assert goes_on(running)


@pytest.mark.slow
def test_what_cannot_be_attached_to_is_refused(attach: Attach) -> None:
    with launched("test_mt", play) as running:
        error = rest_of(attach("nobody-0"), 1)
        assert "has no worker 'nobody-0'; it has counter-0" in error
        assert goes_on(running)
    with pytest.raises(DefinitionError, match="does not reach what was left behind"):
        launched("test_mp", play, detach=True, pdb=True)
