"""Tools for tests of programs: run a program with a deadline, inject faults, check the results afterwards.

Example:
    def test_the_counts_agree_although_mappers_die():
      with lp.launch(make_program(), "test_mp") as running:
        with lp.testing.KillWorkers(running, ["mapper"], seed=7, chance=0.2, every_s=0.1):
          running.wait(60)
      assert "the counts agree" in running.logs("driver")

On a machine without GPUs, the environment variable LP_FAKE_GPUS simulates some: `4`, or `A100:2,H100:2`. The
local backends plan, refuse and allocate these GPUs like real ones (docs/guides/resources.md).
"""

from launchpad.courier.transport.fault_injection import Faults
from launchpad.testing.call_history import Findings, History
from launchpad.testing.chaos import Kill, KillWorkers, crash, freeze, throttle
from launchpad.testing.launcher import Launcher
from launchpad.testing.leak_check import nothing_left_over
from launchpad.testing.one_worker import worker
from launchpad.testing.run_program import run

__all__ = [
    # Tests of whole programs, and of a class alone.
    "run",
    "Launcher",
    "worker",
    "nothing_left_over",
    # Faults of messages and of workers.
    "Faults",
    "Kill",
    "KillWorkers",
    "crash",
    "throttle",
    "freeze",
    # Checks of what must hold in spite of faults.
    "Findings",
    "History",
]
