"""The scheduler: slots go by priority, then first come, first served. A trial gets all its slots at once.

It is a pure function: its arguments are the state, and its result says what to do.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Job(NamedTuple):
    """A trial that waits for slots, or has them. When jobs are sorted, the first one gets slots first.

    Attributes:
        priority: The smaller the number, the more urgent, as in Determined.
        n: The trial's number among the trials of all experiments.
    """

    priority: int
    n: int
    slots: int


class Plan(NamedTuple):
    """The trials that begin now, with their slots, and the trials that should save and leave theirs."""

    starts: list[tuple[Job, list[str]]]
    preempted: list[Job]


def schedule(
    waiting: Sequence[Job], running: Sequence[Job], free: Sequence[str], n_ending: int = 0
) -> Plan:
    """Plan for the slots of one pool.

    No trial overtakes one that waits for more slots than are free: that one would wait forever. If less
        urgent
    trials have enough slots for it, the least urgent of them are preempted.

    Args:
        n_ending: How many slots become free soon, since their trials are over.
    """
    free = list(free)
    starts = list[tuple[Job, list[str]]]()
    for job in sorted(waiting):
        if job.slots > len(free):
            missing = job.slots - len(free) - n_ending
            victims = list[Job]()
            for victim in sorted(running, reverse=True):
                if missing > 0 and victim.priority > job.priority:
                    victims.append(victim)
                    missing -= victim.slots
            return Plan(starts, victims if missing <= 0 else [])
        starts.append((job, free[: job.slots]))
        del free[: job.slots]
    return Plan(starts, [])
