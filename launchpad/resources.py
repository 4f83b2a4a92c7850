"""Resources: the CPUs, GPUs, memory and environment of a worker, as frozen data, for every backend."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from launchpad.courier import formatting
from launchpad.courier.checks import is_number, is_whole
from launchpad.courier.explained import explains_arguments
from launchpad.errors import refuse_unless

PACK = "pack"
SPREAD = "spread"
STRICT_PACK = "strict_pack"
STRICT_SPREAD = "strict_spread"
PLACEMENTS = (PACK, SPREAD, STRICT_PACK, STRICT_SPREAD)

SMALLEST_SHARE = 0.0001
"""The smallest share of a GPU that can be requested, the same as on Ray."""

_PREFIXES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)(b?)", re.IGNORECASE)


@explains_arguments("launchpad.other_names:RESOURCES")
@dataclass(frozen=True)
class Resources:
    """The resources of each worker of a group, on any backend.

    Example:
        with program.group("learner", resources=lp.Resources(gpus=2, cpus=8, memory="64GiB")):
          learner = program.add_node(lp.CourierNode(Learner))
        with program.group("actor", resources=lp.Resources(gpus=0.25, cpus=1)):
          for seed in range(8):
            program.add_node(lp.PyClassNode(Actor, learner, seed))

    If the host or cluster doesn't have these resources, the launch fails before anything starts. Resources
    given at launch replace all that the group says: `lp.launch(program, resources={"actor": …})`.
    docs/guides/resources.md says how each backend treats them.

    Attributes:
        cpus: Number of CPUs; fractions are allowed. None means all CPUs, shared with all other workers.
        gpus: 0, a fraction of one GPU below 1, or a whole number of GPUs for this worker alone. A worker
            sees only the GPUs that it was given: `lp.current().gpus`.
        memory: The memory limit in bytes, or as text with a unit: `"4GiB"` is 4 × 2**30, `"500MB"` is
            500 × 10**6. None means no limit.
        accelerator: A part of the GPUs' name, such as `"A100"`; upper or lower case doesn't matter. None
            means any GPU.
        env: Environment variables, set before the worker imports any of your code.
        python: Another interpreter to run the worker with; it must have launchpad and your code.
        labels: Labels that a host must have. They have no effect if there is only one host.
        placement: How the workers of the group are placed on several hosts. `pack` (on few hosts) and
            `spread` (on many) are preferences. `strict_pack` (all on one host) and `strict_spread` (each on a
            host of its own) are requirements: if they can't be met, the launch fails.
    """

    cpus: float | None = None
    gpus: float = 0
    memory: int | str | None = None
    accelerator: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    placement: str = ""

    def __post_init__(self) -> None:
        gpus = self.gpus if _is_finite(self.gpus) else -1
        is_gpu_name = isinstance(self.accelerator, str) and self.accelerator != "" and gpus > 0
        cpus_are_good = self.cpus is None or (_is_finite(self.cpus) and self.cpus > 0)
        memory_is_good = self.memory is None or _bytes_in(self.memory) > 0
        is_dict = {name: isinstance(getattr(self, name), Mapping) for name in ("env", "labels")}
        labels = self.labels.values() if is_dict["labels"] else ()
        rules = (
            ("cpus", cpus_are_good, "more than 0, or None for no limit"),
            (
                "gpus",
                gpus == int(gpus) >= 0 or SMALLEST_SHARE <= gpus < 1,
                "0, a share of one GPU below 1 (such as 0.25), or a whole number",
            ),
            (
                "memory",
                memory_is_good,
                "bytes, or text with a unit such as '500MB' or '4GiB', more than 0",
            ),
            (
                "accelerator",
                self.accelerator is None or is_gpu_name,
                "a part of the name of a GPU such as 'A100', together with gpus=…",
            ),
            ("python", isinstance(self.python, str), "the path of an interpreter"),
            ("env", is_dict["env"], "names and values, as in a dict"),
            ("labels", is_dict["labels"], "names and values, as in a dict"),
            (
                "labels",
                all(isinstance(value, str) for value in labels),
                "text for each label, as in {'zone': 'a'}",
            ),
            ("placement", self.placement in ("", *PLACEMENTS), f"one of {', '.join(PLACEMENTS)}"),
        )
        refuse_unless(self, rules)

    @property
    def memory_bytes(self) -> int | None:
        """The memory limit in bytes; None if there is no limit."""
        return None if self.memory is None else _bytes_in(self.memory)

    def asked(self) -> str:
        """Return a short description of what the worker needs from a host; empty if it needs nothing."""
        parts = [
            self.cpus is not None and formatting.counted(self.cpus, "CPU"),
            self.gpus > 0
            and " ".join(filter(None, (formatting.counted(self.gpus, "GPU"), self.accelerator))),
            self.memory_bytes is not None and formatting.size(self.memory_bytes),
            self.labels and "on " + ", ".join(f"{k}={v}" for k, v in self.labels.items()),
            self.placement,
        ]
        return ", ".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        """Return the resources as plain data for JSON, with the memory in bytes."""
        plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in vars(self).items()}
        return {**plain, "memory": self.memory_bytes}


@dataclass(frozen=True)
class PythonProcess:
    """Options for the local processes of one group: `lp.launch(local_resources={label: …})`.

    Example:
        lp.launch(program, "local_mp", local_resources={
            "actor": lp.PythonProcess(args={"verbosity": 1}, env={"CUDA_VISIBLE_DEVICES": ""})})

    Attributes:
        args: Command-line flags that the worker sees in `sys.argv`; `{"seed": 1}` becomes `--seed=1`.
        env: Environment variables. Set a variable here or in the group's Resources, not in both.
        python: Another interpreter to run the worker with; it must have launchpad and your code. Set it here
            or in the group's Resources, not in both.
    """

    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    python: str = ""

    def argv(self) -> tuple[str, ...]:
        """Return the flags as on a command line."""
        return tuple(f"--{name}={value}" for name, value in self.args.items())


def _is_finite(value: object) -> TypeGuard[float]:
    return is_number(value) and math.isfinite(value)


def _bytes_in(memory: object) -> int:
    """Return the size in bytes; 0 if `memory` is not a size."""
    if is_whole(memory, at_least=0):
        return memory
    match = _SIZE.fullmatch(memory.strip()) if isinstance(memory, str) else None
    if match is None or (match[3] and not match[2]):
        return 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** _PREFIXES[match[2].lower()])
