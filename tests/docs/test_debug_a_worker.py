"""The commands of docs/how_to/debug_a_worker.md, on the program that it shows."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.docs import pages
from tests.helpers import scripts
from tests.waiting import until

PAGE = pages.ROOT / "docs/how_to/debug_a_worker.md"


def test_the_commands_show_where_a_program_hangs() -> None:
    (block,) = (b for b in pages.blocks("console") if b.page == PAGE and "stacks" in b.text)
    program, *commands = re.split(r"^\$ python ", block.text, flags=re.M)[1:]
    environment = scripts.environment()

    def output_of(command: str) -> str:
        arguments = [sys.executable, *command.split()]
        return subprocess.run(
            arguments, cwd=pages.ROOT, env=environment, capture_output=True, text=True, timeout=60
        ).stdout

    script = subprocess.Popen(
        [sys.executable, *program.split()], cwd=pages.ROOT, env=environment, text=True
    )
    try:
        until(lambda: "in get_count" in output_of("-m launchpad stacks hanging"))

        for text in commands:
            command, _, shown = text.partition("\n")
            assert not (why := pages.difference(shown, output_of(command))), why
    finally:
        script.terminate()
        script.wait(timeout=30)
