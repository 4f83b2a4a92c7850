"""Launchpad's own log: off by default, turned on by a flag or a variable, in workers too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import scripts

SCRIPT = """
import logging, sys
import launchpad as lp

class Server:
    def number(self):
        return 1

def ask(server):
    assert server.number() == 1

{set_up}
if __name__ == "__main__":
    program = lp.Program("asking")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyNode(ask, server), label="asker")
    lp.launch(program, launch_type="local_mp")
"""
CONNECTED = "DEBUG launchpad.courier: connected to server-0"
STARTED = "INFO launchpad.supervision: server-0 is started (attempt 1)"


@pytest.mark.parametrize("set_up", ["", "logging.basicConfig(level=logging.DEBUG)"])
def test_nothing_is_logged_unless_it_is_asked_for(set_up: str, tmp_path: Path) -> None:
    done = scripts.run(scripts.write(tmp_path, SCRIPT.format(set_up=set_up)))

    assert "launchpad." not in done.stderr + done.stdout


def test_the_flag_turns_it_on_in_the_launcher_and_in_workers(tmp_path: Path) -> None:
    done = scripts.run(scripts.write(tmp_path, SCRIPT.format(set_up="")), "--lp_log_level=Debug")

    assert STARTED in done.stderr
    assert CONNECTED in done.stdout


def test_the_variable_does_so_too_and_info_leaves_out_connections(tmp_path: Path) -> None:
    command = scripts.write(tmp_path, SCRIPT.format(set_up=""))

    done = scripts.run(command, env={"LP_LOG_LEVEL": "info"})

    assert STARTED in done.stderr
    assert "launchpad.courier" not in done.stdout


def test_handlers_of_the_script_get_the_lines_once_and_in_their_format(tmp_path: Path) -> None:
    set_up = "logging.basicConfig(format='mine: %(message)s', stream=sys.stdout)"
    command = scripts.write(tmp_path, SCRIPT.format(set_up=set_up))

    done = scripts.run(command, "--lp_log_level=debug")

    assert done.stderr == ""
    assert done.stdout.count("mine: server-0 is started (attempt 1)\n") == 1
    assert done.stdout.count("| mine: connected to server-0") == 1


@pytest.mark.parametrize(
    ("flags", "variable"), [(["--lp_log_level=loud"], ""), ([], "loud")], ids=["flag", "variable"]
)
def test_a_level_that_does_not_exist_is_refused_before_anything_starts(
    flags: list[str], variable: str, tmp_path: Path
) -> None:
    command = scripts.write(tmp_path, SCRIPT.format(set_up=""))

    done = scripts.run(command, *flags, env={"LP_LOG_LEVEL": variable})

    assert done.returncode == 1
    assert "there is no level 'loud', only debug, info, warning, error" in done.stderr


def test_warnings_of_launchpad_are_printed_without_any_handler(tmp_path: Path) -> None:
    script = "import launchpad, logging; logging.getLogger('launchpad.courier').warning('slow')"

    done = scripts.run(scripts.write(tmp_path, script))

    assert done.stderr == "slow\n"
