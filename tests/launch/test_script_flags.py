"""Launchpad's flags beside the parser of a script: one command line for all of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import scripts

PREAMBLE = """
import os, sys
import launchpad as lp

def work(lr):
    return lr, os.getpid(), sys.argv[1:]

def planned():
    program = lp.Program("planned")
    program.add_node(lp.PyNode(work, 1), label="worker")
    return lp.plan(program).launch_type

def train(lr, *launch_type):
    program = lp.Program("training")
    program.add_node(lp.PyNode(work, lr), label="worker")
    [(lr, pid, arguments)] = lp.run(program, *launch_type)["worker"]
    where = "thread" if pid == os.getpid() else "process"
    print(f"lr={lr!r}, in a {where}, sys.argv of the worker: {arguments}")
"""

PARSERS = {
    "absl": """
from absl import app, flags
LR = flags.DEFINE_float("lr", 1.0, "")
app.run(lambda _: train(LR.value))
""",
    "argparse": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
lp.add_flags(parser)
train(parser.parse_args().lr)
""",
    "argparse with the option itself": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--lp_launch_type", default="local_mt")
args = parser.parse_args()
train(args.lr, args.lp_launch_type)
""",
    "click": """
import click
@click.command()
@click.option("--lr", type=float)
def main(lr):
    train(lr)
main()
""",
    "hydra": """
from dataclasses import dataclass
import hydra
from hydra.core.config_store import ConfigStore
@dataclass
class Config:
    lr: float = 1.0
ConfigStore.instance().store(name="config", node=Config)
@hydra.main(version_base=None, config_name="config")
def main(config):
    train(config.lr)
main()
""",
    "typer": """
import typer
def main(lr: float = 1.0):
    train(lr)
typer.run(main)
""",
    "tyro": """
import tyro
def main(lr: float):
    train(lr)
tyro.cli(main)
""",
    "take_flags": """
lp.take_flags()
[option, value] = sys.argv[1:]  # refuses anything else
train(float(value))
""",
}
REFUSING = ["click", "hydra", "typer", "tyro", "take_flags"]
"""Without an option for launchpad's flags."""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a body as a script, with flags, in a directory of its own."""

    def run(body: str, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
        return scripts.run(scripts.write(tmp_path, PREAMBLE + body), *flags, cwd=tmp_path, env=env)

    return run


def lr_for(parser: str) -> list[str]:
    """`--lr 0.1`; the grammar of hydra has no dashes."""
    return ["lr=0.1"] if parser == "hydra" else ["--lr", "0.1"]


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", ["--lp_launch_type=local_mp", "--lp_launch_type local_mp"])
@pytest.mark.parametrize("parser", PARSERS)
def test_a_script_with_any_parser_is_launched_as_the_flag_says(
    run: Run, parser: str, launch_type: str
) -> None:
    lr = lr_for(parser)
    flags = launch_type.split()

    done = run(PARSERS[parser], *lr, *flags)

    seen = lr if parser in REFUSING else lr + flags
    assert done.stdout == f"lr=0.1, in a process, sys.argv of the worker: {seen}\n", done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("parser", ["argparse", *REFUSING])
@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--lp_launch_type=local_mb", ["there is no launch type 'local_mb'", "local_mp, local_mt"]),
        ("--lp_termination_notice_secs=soon", ["lp_termination_notice_secs", "soon"]),
        ("--lp_launch_type", ["lp_launch_type", "expected one argument|it needs a value"]),
    ],
)
def test_a_wrong_flag_is_refused_before_the_script_does_anything(
    run: Run, parser: str, flag: str, expected: list[str]
) -> None:
    done = run(PARSERS[parser], *lr_for(parser), flag)

    assert done.returncode == (1 if parser == "take_flags" else 2)
    assert done.stdout == ""
    for text in expected:
        assert any(each in done.stderr for each in text.split("|")), done.stderr
    assert ("Traceback" in done.stderr) is (parser == "take_flags")


@pytest.mark.parametrize("parser", ["argparse", *REFUSING])
def test_a_mistyped_flag_is_refused_and_argparse_names_the_nearest(run: Run, parser: str) -> None:
    done = run(PARSERS[parser], *lr_for(parser), "--lp_lunch_type=local_mp")

    assert done.returncode == (1 if parser == "take_flags" else 2)
    assert done.stdout == ""
    assert "--lp_lunch_type" in done.stderr
    if parser in ("argparse", "take_flags"):
        assert "Did you mean --lp_launch_type?" in done.stderr


@pytest.mark.parametrize(
    "body",
    [
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lp_viewer", type=float)
lp.add_flags(parser)
train(parser.parse_args().lp_viewer)
""",
        """
import click
@click.command()
@click.option("--lp_viewer", type=float)
def main(lp_viewer):
    train(lp_viewer)
main()
""",
    ],
    ids=["argparse", "click"],
)
def test_an_option_of_the_scripts_own_may_look_like_one_of_them(run: Run, body: str) -> None:
    done = run(body, "--lp_viewer", "0.1", "--lp_launch_type=local_mp")

    assert "lr=0.1, in a process" in done.stdout, done.stderr


def test_a_launch_in_a_worker_does_not_warn_of_the_flag_of_its_script(run: Run) -> None:
    done = run(
        """
import click
def inner(lr):
    program = lp.Program("inner")
    program.add_node(lp.PyNode(work, lr), label="worker")
    return lp.run(program, "local_mt")["worker"][0][0]
@click.command()
def main():
    program = lp.Program("outer")
    program.add_node(lp.PyNode(inner, 0.1), label="outer")
    print(lp.run(program)["outer"])
main()
""",
        "--lp_launch_type=local_mp",
    )

    assert "[0.1]" in done.stdout
    assert "has no effect" not in done.stdout + done.stderr


def test_the_help_of_argparse_shows_the_flags(run: Run) -> None:
    done = run(PARSERS["argparse"], "--help")

    assert done.returncode == 0
    options, group = done.stdout.split("\nlaunchpad:\n")
    assert "--lr LR" in options
    for name in ("lp_launch_type TYPE", "lp_termination_notice_secs SECONDS", "lp_pdb", "lp_view"):
        assert f"--{name}" in group


def test_argparse_has_the_values_too_and_launches_go_by_the_command_line_it_has_parsed_last(
    run: Run,
) -> None:
    body = """
import argparse
parser = argparse.ArgumentParser()
lp.add_flags(parser)
for flags in ["--lp_launch_type=test_mp --lp_pdb", "--lp_view=terminal"]:
    args = parser.parse_args(flags.split())
    print(args.lp_launch_type, args.lp_pdb, args.lp_view, args.lp_termination_notice_secs, planned())
"""
    for imports in ("", "from absl import flags\n"):
        assert run(imports + body).stdout == (
            "test_mp True None None test_mp\nNone None terminal None local_mt\n"
        )


TAKEN = """
import click
print(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ("--lp_view --lr 0.1 --nolp_pdb -lp_launch_type=test_mt x", ["--lr", "0.1", "x"]),
        ("--lp_solver=glpk lp_view -- --lp_pdb", ["--lp_solver=glpk", "lp_view", "--", "--lp_pdb"]),
    ],
)
def test_only_launchpads_flags_are_taken_and_none_behind_two_dashes(
    run: Run, flags: str, left: list[str]
) -> None:
    assert run(TAKEN, *flags.split()).stdout == f"{left}\n"


@pytest.mark.parametrize("first", ["import click, launchpad", "import launchpad, click"])
def test_flags_are_taken_whichever_is_imported_first(tmp_path: Path, first: str) -> None:
    command = scripts.write(tmp_path, f"import sys\n{first}\nprint(sys.argv[1:])")

    assert scripts.run(command, "--lp_pdb", "--lr=1").stdout == "['--lr=1']\n"


def test_absl_has_the_values_of_flags_that_another_library_has_had_taken(run: Run) -> None:
    body = """
import click  # as some library imports it
from absl import app, flags
def main(argv):
    print(argv[1:], flags.FLAGS.lp_launch_type, lp.LAUNCH_TYPE.value, lp.flags.termination_notice_s())
    print(planned())
app.run(main)
"""
    for order in (body, "from absl import flags\n" + body):
        done = run(order, "--lp_launch_type=test_mp", "x", "--lp_termination_notice_secs=3")

        assert done.stdout == "['x'] test_mp test_mp 3.0\ntest_mp\n", done.stderr


def test_a_launch_in_a_worker_goes_by_the_flags_that_were_taken(run: Run) -> None:
    body = """
import click
def nested():
    return planned(), sys.argv[1:]
program = lp.Program("outer")
program.add_node(lp.PyNode(nested), label="worker")
print(lp.run(program)["worker"])
"""
    assert run(body, "--lp_launch_type=local_mp").stdout == "[('local_mp', [])]\n"


def test_a_flag_that_the_script_overrules_by_an_option_of_its_own_is_said_to_have_no_effect(
    run: Run,
) -> None:
    body = """
import click
@click.command()
@click.option("--lp_launch_type", default="local_mt")
def main(lp_launch_type):
    train(1, lp_launch_type)
main()
"""
    done = run(body, "--lp_launch_type=local_mp")

    assert done.returncode == 0
    assert (
        "--lp_launch_type=local_mp has no effect: the script launches with launch_type='local_mt'"
        in (done.stderr)
    )


@pytest.mark.slow
@pytest.mark.parametrize("parser", ["argparse", "typer"])
def test_launchpad_run_hands_the_flags_to_the_script(tmp_path: Path, parser: str) -> None:
    [python, script] = scripts.write(tmp_path, PREAMBLE + PARSERS[parser])
    command = [python, "-m", "launchpad", "run", script, "--"]

    done = scripts.run(command, "--lr", "0.1", "--lp_launch_type=local_mp")

    assert done.stdout.startswith("lr=0.1, in a process"), done.stderr
