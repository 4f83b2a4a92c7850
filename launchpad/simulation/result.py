"""The result of a simulation: its history as data, and figures of each group as a short table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from launchpad import outcome
from launchpad.courier import formatting
from launchpad.outcome import Outcome
from launchpad.simulation.workers import SimulatedEvent

RUNNING = "running"
"""The outcome of a simulated program that had not ended when the time was up."""

_COMMANDS = ("StartWorker", "StopWorker", "KillWorker", "AnnounceGone", "AnnounceWatermarks")


@dataclass(frozen=True)
class SimulatedGroup:
    """Figures of one group of a simulated program.

    Attributes:
        workers: The number of its workers.
        starts: The number of attempts that were started.
        restarts: The number of attempts after the first one of each worker.
        failures: The number of attempts that failed, or were lost with their host.
        availability: The share of time, from 0 to 1, in which a worker was ready. It counts until the worker
            has done its work, or the simulation ends.
        lost_s: The time that workers have run without saving what they did, in seconds, summed over all
            workers. It counts if they then fail, are killed, or are restarted with others.
    """

    label: str
    workers: int
    starts: int
    restarts: int
    failures: int
    availability: float
    lost_s: float


@dataclass(frozen=True)
class Simulation:
    """The result of `lp.simulate`. Printed, it is a short table.

    Example:
        hosts = lp.SimulatedHosts(8, mtbf_s=7 * 86_400)
        simulation = lp.simulate(program, hosts=hosts, restart=lp.RestartPolicy(), seed=1)
        assert simulation.group("learner").availability > 0.99
        for at_s, name, what, attempt, host, why in simulation.history:
            print(f"{at_s:10.1f} s  {name} {what} {why}")

    Attributes:
        program: The name of the program.
        seed: The seed of all random numbers.
        outcome: `succeeded`; `failed`, if a failure ended the program; or `running`, if the time was up.
        time_s: The virtual time at the end, in seconds since the launch.
        groups: Figures of each group.
        failures: The failure that ended the program, and the failures that came after it.
        history: All changes of workers and hosts, in order: each a tuple with `at_s`, `subject`, `what`,
            `attempt`, `host` and `why`.
        messages: The number of messages of each kind that a real launcher and its workers would have sent,
            `Ready` or `StartWorker` for instance. Heartbeats and counts of calls are left out.
    """

    program: str
    seed: int
    outcome: str
    time_s: float
    groups: tuple[SimulatedGroup, ...]
    failures: tuple[Outcome, ...] = ()
    history: tuple[SimulatedEvent, ...] = field(default=(), repr=False)
    messages: Mapping[str, int] = field(default_factory=dict)

    @property
    def commands(self) -> int:
        """The number of commands of the supervisor to workers."""
        return sum(self.messages.get(name, 0) for name in _COMMANDS)

    @property
    def events(self) -> int:
        """The number of events that workers have reported to the supervisor."""
        return sum(self.messages.values()) - self.commands

    def group(self, label: str) -> SimulatedGroup:
        """Return the figures of one group.

        Raises:
            KeyError: no group has this label.
        """
        for group in self.groups:
            if group.label == label:
                return group
        raise KeyError(f"program {self.program!r} has no group {label!r}")

    def of(self, name: str) -> list[SimulatedEvent]:
        """Return the history of one worker or host."""
        return [event for event in self.history if event.subject == name]

    def __str__(self) -> str:
        end = f"still runs after {formatting.age(self.time_s)}"
        if self.outcome != RUNNING:
            end = f"has {self.outcome} after {formatting.age(self.time_s)}"
        rows = [
            ("GROUP", "WORKERS", "STARTS", "FAILURES", "RESTARTS", "AVAILABLE", "WORK LOST"),
            *(
                (
                    group.label,
                    f"{group.workers:,}",
                    f"{group.starts:,}",
                    f"{group.failures:,}",
                    f"{group.restarts:,}",
                    f"{group.availability:.3%}",
                    formatting.age(group.lost_s),
                )
                for group in self.groups
            ),
        ]
        lines = [
            f"simulation of program {self.program!r} with seed {self.seed}: it {end}",
            *formatting.aligned(rows, n_text=1),
            f"messages: {self.commands:,} commands, {self.events:,} events",
        ]
        if self.failures:
            first = outcome.first_cause(list(self.failures))
            lines.append(first.headline())
            lines += [f"hint: {first.hint}"] if first.hint else []
        return "\n  ".join(lines)
