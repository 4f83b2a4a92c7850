"""Run examples as a user does: as a script, in a process of its own, looking at what it prints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from examples._shared.data import Data
from examples._shared.places import module_of
from tests.helpers import scripts

RUN_S, ON_A_CLUSTER_S = (
    300,
    600,
)  # where up to thirty pods start beside other tests on a small machine

Run = Callable[..., str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give those that run a whole example more time than others."""
    for item in items:
        if "run_example" not in getattr(item, "fixturenames", ()):
            continue
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        is_on_a_cluster = parameters.get("launch_type") in ("ray", "kubernetes")
        seconds = ON_A_CLUSTER_S if is_on_a_cluster else RUN_S
        item.add_marker(pytest.mark.timeout(seconds), append=False)  # before one of its own


@pytest.fixture
def run_example(request: pytest.FixtureRequest) -> Run:
    """Runs `python -m examples.…` with flags, which has to end well; gives what it printed."""
    # Less than pytest's own deadline, so that what the example printed is shown.
    deadline_s = request.node.get_closest_marker("timeout").args[0] - 20

    def run(name: str, launch_type: str, *flags: str) -> str:
        command = [sys.executable, "-m", module_of(name), f"--lp_launch_type={launch_type}"]
        done = scripts.run(command, *flags, cwd=scripts.ROOT, timeout_s=deadline_s)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def in_a_worker(tmp_path: Path) -> Iterator[None]:
    """What the test makes is made in a worker, which can save itself."""
    with lp.testing.worker("shard", state=tmp_path):
        yield


def noise(n: int) -> Data:
    """So many images of nothing."""
    rng = np.random.default_rng(n)
    return Data(rng.random((n, 64)), rng.integers(10, size=n))


def assert_refused(*checks: Callable[[], object]) -> None:
    """Each of these checks of a claim finds that it does not hold."""
    for check in checks:
        with pytest.raises(ArithmeticError, match="it should hold that"):
            check()
