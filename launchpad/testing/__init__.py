"""For tests of programs: run one with a deadline, break things in it, check that all is well afterwards.

Example:
  def test_the_counts_agree_although_mappers_die():
    with lp.launch(make_program(), "test_mp") as running:
      with lp.testing.Kills(running, ["mapper"], seed=7, chance=0.2, every_s=0.1):
        running.wait(60)
    assert "the counts agree" in running.logs("driver")

Where there are no GPUs, the environment variable LP_FAKE_GPUS makes as if: `4`, or `A100:2,H100:2`. They are
planned, refused and given out like real ones, on the local backends (docs/guides/resources.md).
"""

from launchpad.courier.faults import Faults
from launchpad.testing.history import Findings, History
from launchpad.testing.kills import Kill, Kills
from launchpad.testing.leftovers import nothing_left_over
from launchpad.testing.pauses import slow, stuck
from launchpad.testing.run_to_end import run

__all__ = [
    # Whole programs.
    "run",
    "nothing_left_over",
    # What breaks: messages, workers.
    "Faults",
    "Kill",
    "Kills",
    "slow",
    "stuck",
    # What must hold nevertheless.
    "Findings",
    "History",
]
