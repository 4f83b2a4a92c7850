"""The behaviour of simulated workers: how long they start and run, and when they fail by themselves."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from random import Random

from launchpad.courier.checks import is_number
from launchpad.courier.explained import did_you_mean
from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import DefinitionError
from launchpad.launch.plan import WorkerPlan

Failures = Mapping[str, float | Sequence[float]]
"""Group or worker → its mean time between failures, or the run times after which its attempts fail."""


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of all workers. Times are seconds; see `lp.simulate` for the arguments."""

    start_s: float | Mapping[str, float]
    run_s: Mapping[str, float]
    failures: Failures

    def start_time_s(self, worker: WorkerPlan) -> float:
        """Return how long a worker takes from its start until it is ready."""
        if isinstance(self.start_s, Mapping):
            return self.start_s.get(worker.group, 1.0)
        return self.start_s

    def work_s(self, worker: WorkerPlan) -> float | None:
        """Return how long a worker has to run until its work is done; None if it only serves."""
        return self.run_s.get(worker.group)

    def fails_after_s(self, worker: WorkerPlan, attempt: int, random: Random) -> float:
        """Return after how much time of running this attempt fails by itself; infinity if it doesn't."""
        of_worker = self.failures.get(worker.name, self.failures.get(worker.group, math.inf))
        if isinstance(of_worker, Sequence):
            return of_worker[attempt - 1] if attempt <= len(of_worker) else math.inf
        return random.expovariate(1 / of_worker) if of_worker < math.inf else math.inf


def checked(behaviour: Behaviour, groups: Collection[str], workers: Collection[str]) -> Behaviour:
    """Return the behaviour, if all its names and times are good.

    Raises:
        DefinitionError: a name is not in the program, or a time is not valid.
    """
    start_s = behaviour.start_s
    of_groups = {"run_s": behaviour.run_s}
    if isinstance(start_s, Mapping):
        of_groups["start_s"] = start_s
    elif not _is_time(start_s):
        raise DefinitionError(f"start_s={start_s!r}: expected seconds, 0 or more")
    for argument, times in of_groups.items():
        _check_names(argument, times, groups)
        for label, time_s in times.items():
            if not _is_time(time_s):
                raise DefinitionError(
                    f"{argument}[{label!r}]={time_s!r}: expected seconds, 0 or more"
                )
    _check_names("failures", behaviour.failures, [*groups, *workers])
    for name, value in behaviour.failures.items():
        # The characters of a text are no times, so a text is refused.
        is_list = isinstance(value, Sequence) and all(map(_is_time, value))
        is_mean = is_number(value) and value > 0
        if not (is_list or is_mean):
            raise DefinitionError(
                f"failures[{name!r}]={value!r}: expected the mean time between failures in seconds, more than"
                " 0, or a list of the run times after which attempts 1, 2, … fail"
            )
    return behaviour


def _check_names(argument: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise DefinitionError(
                f"{argument} names {name!r}, which is not in the program."
                f"{did_you_mean(str(name), known, shown=repr)}"
            )


def _is_time(value: object) -> bool:
    return is_number(value) and value >= 0
