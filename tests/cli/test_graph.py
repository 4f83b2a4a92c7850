"""`python -m launchpad graph`: a picture of a program, or of one that runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import launchpad as lp
from launchpad.__main__ import main
from launchpad.graph_picture import mermaid
from tests import nodes

HELLO = "examples.hello_world.program:make_program"


def test_a_program_is_drawn_without_starting_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "hello.svg"

    codes = [main(["graph", HELLO]), main(["graph", HELLO, "-o", str(picture)])]

    assert codes == [0, 0]
    assert "    g_visitor --> g_greeter\n" in capsys.readouterr().out
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_a_running_program_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    program = lp.Program(f"drawn-{time.monotonic_ns()}")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    with program.group("waiter"):
        for _ in range(2):
            program.add_node(lp.PyNode(lambda _: lp.wait_for_stop(), counter))

    with lp.launch(program, "test_mt"):
        code = main(["graph", program.name])

    assert code == 0
    assert capsys.readouterr().out == f"{mermaid(program)}\n"


def test_a_picture_that_cannot_be_written_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", HELLO, "-o", "/nowhere/hello.svg"]) == 1
    assert "launchpad: the picture cannot be written: " in capsys.readouterr().err
