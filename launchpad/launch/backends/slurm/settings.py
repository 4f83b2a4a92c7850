"""The settings of a launch on Slurm: what the job asks for beyond what the program itself says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launchpad.courier.checks import is_whole
from launchpad.errors import DefinitionError, refuse_unless
from launchpad.resources import Resources

_TIME = re.compile(r"(\d+-)?\d+(:\d{1,2}){0,2}")
_GPUS = re.compile(r"([\w.-]+:)?\d+")


@dataclass(frozen=True)
class SlurmSettings:
    """SlurmSettings of a job: arguments of `lp.plan` and `lp.launch`.

    Example:
        lp.launch(program, "slurm", nodes=4, partition="gpu", time="12:00:00")

    Attributes:
        nodes: The number of nodes. None means one, or all nodes of the job in which the script runs.
        partition, account, qos, constraint: As for `sbatch`; empty means the site's default.
        time: The time limit: minutes, or text such as `"12:00:00"` or `"2-00:00"`. None means the
            partition's.
        cpus_per_node: CPUs to ask for on each node. None means as many as the workers there need.
        memory_per_node: Memory to ask for on each node: bytes, or text such as `"64GiB"`. None means as much
            as the workers ask for, or the site's default if they ask for none.
        memory_per_cpu: The same for each CPU, at sites that refuse memory for a node.
        gpus_per_node: GPUs to ask for on each node: a number, or text such as `"a100:4"`. None means as many
            as the workers there need.
        sbatch_options: Further options of `sbatch`, such as `["--exclusive"]`.
        requeue: True to go on in a requeued job after the time limit. The script must run in the job.
    """

    nodes: int | None = None
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    time: int | str | None = None
    cpus_per_node: int | None = None
    memory_per_node: int | str | None = None
    memory_per_cpu: int | str | None = None
    gpus_per_node: int | str | None = None
    sbatch_options: Sequence[str] = ()
    requeue: bool = False

    def __post_init__(self) -> None:
        texts = ("partition", "account", "qos", "constraint")
        words = [(n, _is_word(getattr(self, n)), "a name without spaces") for n in texts]
        count = "a whole number of 1 or more, or None"
        memory = "bytes, or text with a unit such as '500MB' or '4GiB', or None"
        options = self.sbatch_options
        rules = (
            *words,
            ("nodes", _is_whole_or_none(self.nodes), count),
            ("cpus_per_node", _is_whole_or_none(self.cpus_per_node), count),
            (
                "time",
                _is_whole_or_none(self.time) or _matches(_TIME, self.time),
                "minutes, or text such as '30', '12:00:00' or '2-00:00:00'",
            ),
            ("memory_per_node", _is_memory(self.memory_per_node), memory),
            ("memory_per_cpu", _is_memory(self.memory_per_cpu), memory),
            (
                "gpus_per_node",
                is_whole(self.gpus_per_node, at_least=0)
                or self.gpus_per_node is None
                or _matches(_GPUS, self.gpus_per_node),
                "a whole number, or text such as 'a100:4'",
            ),
            (
                "sbatch_options",
                not isinstance(options, str)
                and isinstance(options, Sequence)
                and all(
                    isinstance(o, str) and o.startswith("-") and "\n" not in o for o in options
                ),
                "a list of options, such as ['--exclusive', '--mail-type=END']",
            ),
            ("requeue", isinstance(self.requeue, bool), "True or False"),
        )
        refuse_unless(self, rules)
        if self.memory_per_node is not None and self.memory_per_cpu is not None:
            raise DefinitionError(
                f"memory_per_node={self.memory_per_node!r} and memory_per_cpu={self.memory_per_cpu!r}:"
                " expected only one of them"
            )


def memory_bytes(memory: int | str | None) -> int | None:
    """Return a setting of memory in bytes; None if it isn't set."""
    return Resources(memory=memory).memory_bytes


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and not re.search(r"\s", value)


def _is_whole_or_none(value: Any) -> bool:
    return value is None or is_whole(value, at_least=1)


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_memory(value: Any) -> bool:
    try:
        memory_bytes(value)
    except DefinitionError:
        return False
    return True
