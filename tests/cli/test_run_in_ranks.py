"""`launchpad run --ranks N`: a script for torchrun, as it is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import scripts
from tests.waiting import until

COMMAND = [sys.executable, "-m", "launchpad", "run"]
SCRIPT = """
import json, multiprocessing, os, signal, sys, time
from pathlib import Path
import beside

rank = int(os.environ["RANK"])
generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

def tell(queue):
    queue.put("from a child")

def main(what):
    if what == "show":
        names = [n for n in os.environ if n.split("_")[0] in ("RANK", "WORLD", "LOCAL", "GROUP", "MASTER")]
        Path(f"seen-{rank}.json").write_text(json.dumps({
            "name": __name__, "argv": sys.argv, "path": sys.path[0], "file": __file__, "package": __package__,
            "variables": {name: os.environ[name] for name in names}, "has_torch": "torch" in sys.modules,
        }))
    elif what == "exit":
        print("run", generation)
        sys.exit(int(sys.argv[2]))
    elif what == "raise" and rank == 1:
        raise ValueError("boom")
    elif what == "resume":
        saved = Path(f"saved-{rank}")
        first = int(saved.read_text()) if saved.exists() else 0
        saved.write_text("7")
        while not all(Path(f"saved-{other}").exists() for other in (0, 1)):
            time.sleep(0.01)
        if generation == 0:
            Path(__file__).unlink(missing_ok=True)
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(100)
        print("goes on from", first)
    elif what == "spawn":
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=tell, args=(queue,))
        process.start()
        print(queue.get())
        process.join()
    elif what == "wait":
        Path(f"waits-{rank}").write_text(str(os.getpid()))
        time.sleep(100)

if __name__ == "__main__":
    main(*sys.argv[1:2])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a script, and of a package with the same script."""
    (tmp_path / "package").mkdir()
    for where, text in (
        ("", SCRIPT),
        ("package/", SCRIPT.replace("import beside", "from . import beside")),
    ):
        (tmp_path / f"{where}script.py").write_text(text)
        (tmp_path / f"{where}beside.py").write_text("WORD = 'beside'")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return scripts.run([*COMMAND, "--ranks", "2"], *arguments, cwd=folder)


def seen_by(folder: Path) -> list[dict[str, Any]]:
    """What each rank has seen."""
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in (0, 1)]


def test_a_script_runs_as_main_with_its_own_words_and_the_variables_of_torchrun(
    folder: Path,
) -> None:
    words = ["show", "--ranks", "9", "--help", "-m", "--", "--lp_view"]

    done = run(folder.parent, f"{folder.name}/script.py", *words)

    # The command was started in another folder, which is where the script runs.
    assert (done.returncode, done.stderr) == (0, "")
    seen = seen_by(folder.parent)
    path = str(folder / "script.py")
    for rank, each in enumerate(seen):
        variables = each.pop("variables")
        assert each == {
            "name": "__main__",
            "argv": [f"{folder.name}/script.py", *words],
            "path": str(folder),
            "file": path,
            "package": None,
            "has_torch": False,
        }
        assert int(variables.pop("MASTER_PORT")) > 0
        assert variables == {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
        }


def test_a_module_runs_as_by_python_and_the_options_may_follow_its_name(folder: Path) -> None:
    done = scripts.run([*COMMAND, "package.script", "--ranks=2", "--", "show"], cwd=folder)

    assert (done.returncode, done.stderr) == (0, "")
    seen = seen_by(folder)[1]
    assert (seen["argv"][1:], seen["path"], seen["package"]) == (["show"], str(folder), "package")
    assert seen["argv"][0] == seen["file"] == str(folder / "package" / "script.py")


def test_flags_of_launchpad_are_taken_from_before_and_after_the_script(folder: Path) -> None:
    flags = ["script.py", "--lp_launch_type=local_mt", "show"]

    done = run(folder, *flags)
    other = run(folder, "--lp_launch_type=local_mp", "script.py", "show", "--lp_log_level=info")

    assert (done.returncode, done.stdout) == (1, "")
    assert "launch type 'local_mt' runs ranks as threads" in done.stderr
    assert other.returncode == 0, other.stderr
    assert "program 'script' starts" in other.stderr
    assert seen_by(folder)[0]["argv"] == ["script.py", "show"]


def test_all_ranks_start_again_if_one_dies_with_the_text_of_the_script_at_the_launch(
    folder: Path,
) -> None:
    done = run(folder, "script.py", "resume")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("goes on from 7") == 2
    assert "group 'rank' is started again now (1 of 3 within 60 s)" in done.stdout
    assert not (folder / "script.py").exists()


@pytest.mark.parametrize(
    ("words", "code", "runs", "reported"),
    [
        (["exit", "0"], 0, [0], ""),
        (["exit", "3"], 1, [0, 1], "SystemExit: 3"),
        (["exit", "2"], 1, [0], "sys.exit(2): the script refuses its arguments"),
        (["raise"], 1, [], "ValueError: boom"),
    ],
)
def test_the_end_of_the_script_is_that_of_the_command(
    words: list[str], code: int, runs: list[int], reported: str, folder: Path
) -> None:
    done = run(folder, "--max_restarts=1", "script.py", *words)

    assert done.returncode == code
    assert sorted({line[-5:] for line in done.stdout.splitlines() if "| run " in line}) == [
        f"run {generation}" for generation in runs
    ]
    assert done.stderr.count("program 'script' failed: ") == (1 if reported else 0)
    assert reported in done.stderr.partition("\n")[0]
    # Its traceback begins in the script.
    assert not reported or 'traceback:\n    Traceback (most recent call last):\n      File "' in (
        done.stderr
    )
    assert not reported or f'{folder}/script.py"' in done.stderr.split("File ")[1]


def test_a_process_that_the_script_spawns_does_not_run_it_once_more(folder: Path) -> None:
    done = run(folder, "script.py", "spawn")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("from a child") == 2


def test_ctrl_c_leaves_no_rank(folder: Path) -> None:
    with scripts.started() as start:
        process = start([*COMMAND, "--ranks=2"], "script.py", "wait", cwd=folder)
        marks = [folder / f"waits-{rank}" for rank in (0, 1)]
        until(lambda: all(mark.exists() and mark.read_text() for mark in marks), 60)

        process.send_signal(signal.SIGINT)
        code = process.wait(60)

    pids = [mark.read_text() for mark in marks]
    assert code == 130
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("--ranks 0 script.py", 1, "lp.ranks(script.py, 0): expected the number of ranks"),
        ("--ranks 2 nosuch.py", 1, "the script cannot be read"),
        ("--ranks 2 broken.py", 1, "broken.py is not a script of this Python"),
        ("--ranks 2 nosuch.module", 1, "there is no module to run: No module named 'nosuch'"),
        ("--ranks 2 -m beside.py", 1, "there is no module to run"),
        ("--ranks 2 --max_restarts=-1 script.py", 1, "max_restarts=-1"),
        ("--ranks 2 --gpus=x script.py", 2, "argument --gpus: invalid float value"),
        ("--ranks 2 script.py --lp_lunch_type=ray", 2, "Did you mean --lp_launch_type?"),
        ("script.py --gpus 1", 1, "--gpus is for a script that runs with --ranks N"),
        ("script.py show", 2, "'show': words for the script come after `--`"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_error(
    arguments: str, code: int, text: str, folder: Path
) -> None:
    (folder / "broken.py").write_text("x = (")

    done = scripts.run(COMMAND, *arguments.split(), cwd=folder)

    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr
