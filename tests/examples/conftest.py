"""Run examples as a user does: as a script, in a process of its own, looking at what it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import scripts

ROOT = Path(__file__).parents[2]
DEADLINE_S = 100  # less than pytest's own, so that what the example printed is shown

Run = Callable[..., "subprocess.CompletedProcess[str]"]

BROKEN_PROGRAM = """
import launchpad as lp
from examples.{example} import program as example

class Broken(example.{class_name}):
    def {method}(self, *args):
        if {when}:
            raise PermissionError("broken on purpose")
        return super().{method}(*args)

example.{class_name} = Broken
lp.launch(example.make_program({arguments}))
"""


LOCAL = ["local_mt", "local_mp"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give systems on clusters of one small machine, up to thirty pods beside other tests, 10 minutes."""
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        is_here = item.path.parent == Path(__file__).parent
        if is_here and parameters.get("launch_type") in ("ray", "kubernetes"):
            item.add_marker(pytest.mark.timeout(600), append=False)  # before one of its own


@pytest.fixture(params=[*LOCAL, "ray", "kubernetes"])
def launch_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=LOCAL)
def local_type(request: pytest.FixtureRequest) -> str:
    """For what would be the same on Ray, and take longer."""
    return str(request.param)


@pytest.fixture(params=[*LOCAL, "ray"])
def podless_type(request: pytest.FixtureRequest) -> str:
    """For what fewer tests show with pods, since a cluster takes long to start them."""
    return str(request.param)


@pytest.fixture
def run_example(request: pytest.FixtureRequest) -> Run:
    """Runs `python -m examples.NAME` with flags."""
    timeout = request.node.get_closest_marker("timeout")
    deadline_s = DEADLINE_S if timeout is None else timeout.args[0] - 20

    def run(name: str, launch_type: str, *flags: str) -> subprocess.CompletedProcess[str]:
        command = ("-m", f"examples.{name}", f"--lp_launch_type={launch_type}", *flags)
        return _python(*command, deadline_s=deadline_s)

    return run


@pytest.fixture
def run_system(run_example: Run) -> Callable[..., str]:
    """Runs a system with --quick, whose claims must all hold; gives what it printed."""

    def run(name: str, launch_type: str, *flags: str) -> str:
        done = run_example(name, launch_type, "--quick", *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "the answer is right" in done.stdout
        return done.stdout

    return run


@pytest.fixture
def assert_failure_is_reported(tmp_path: Path) -> Callable[..., None]:
    """Launches an example one of whose methods raises, and looks at what the user gets to see."""

    def check(
        example: str,
        launch_type: str,
        *,
        broken: str,
        worker: str,
        when: str = "True",
        arguments: str = "",
    ) -> None:
        class_name, method = broken.split(".")
        script = tmp_path / "broken.py"
        script.write_text(BROKEN_PROGRAM.format(**locals()))

        done = _python(str(script), f"--lp_launch_type={launch_type}")

        assert done.returncode not in (0, None), done.stdout
        assert re.search(rf"\b{worker}-\d+ failed", done.stderr), done.stderr
        assert "PermissionError: broken on purpose" in done.stderr
        logs = re.findall(r"log:\s+(\S+)", done.stderr)
        assert logs, done.stderr
        assert Path(logs[0]).is_file()

    return check


def _python(*arguments: str, deadline_s: float = DEADLINE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=scripts.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
