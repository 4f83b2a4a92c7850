"""`python -m launchpad graph`: a picture of a program, or of one that runs."""

from __future__ import annotations

from pathlib import Path

import launchpad as lp
from launchpad.graph.picture import mermaid
from tests.cli.conftest import Command, program_of

HELLO = "examples.hello_world.program:make_program"


def test_a_program_is_drawn_without_starting_it(output_of: Command, tmp_path: Path) -> None:
    picture = tmp_path / "hello.svg"

    printed = output_of("graph", HELLO)
    output_of("graph", HELLO, "-o", str(picture))

    assert "    g_visitor --> g_greeter\n" in printed
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_a_running_program_is_drawn(output_of: Command) -> None:
    program = program_of("drawn")

    with lp.launch(program, "test_mt"):
        printed = output_of("graph", "drawn")

    assert printed == f"{mermaid(program)}\n"
