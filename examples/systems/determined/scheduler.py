"""Who gets which slots: by priority, then first come, first served; all slots of a trial at once.

Pure: it is told what there is, and says what is to be done.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Job(NamedTuple):
    """A trial that waits for slots, or has them. Jobs are sorted: the first has them first.

    Attributes:
        priority: The smaller the number, the more urgent, as in Determined.
        n: The trial's number, of all experiments.
    """

    priority: int
    n: int
    slots: int


class Plan(NamedTuple):
    """Which trials begin now, on which slots; which are to save and leave theirs."""

    starts: list[tuple[Job, list[str]]]
    preempted: list[Job]


def schedule(
    waiting: Sequence[Job], running: Sequence[Job], free: Sequence[str], n_ending: int = 0
) -> Plan:
    """Plan for the slots of one pool.

    No trial overtakes one that waits for more slots than there are: it would wait for ever. If running trials
    that are less urgent have enough of them, the least urgent of these are preempted.

    Args:
        n_ending: How many slots become free soon, as the trial that they have is over.
    """
    free, starts = list(free), list[tuple[Job, list[str]]]()
    for job in sorted(waiting):
        if job.slots > len(free):
            missing, victims = job.slots - len(free) - n_ending, list[Job]()
            for victim in sorted(running, reverse=True):
                if missing > 0 and victim.priority > job.priority:
                    victims.append(victim)
                    missing -= victim.slots
            return Plan(starts, victims if missing <= 0 else [])
        starts.append((job, free[: job.slots]))
        del free[: job.slots]
    return Plan(starts, [])
