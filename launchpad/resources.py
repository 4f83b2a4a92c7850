"""What a worker is given, as frozen data. One specification serves every backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Resources:
    """What each worker of a group gets, wherever it runs.

    Example:
      with program.group("learner", resources=lp.Resources(env={"OMP_NUM_THREADS": "4"})):
        program.add_node(lp.CourierNode(Learner))

    Attributes:
      env: Environment variables, set before the worker imports anything of yours.
    """

    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PythonProcess:
    """How local processes of one group are started: `lp.launch(local_resources={label: …})`.

    Example:
      lp.launch(program, "local_mp", local_resources={
          "actor": lp.PythonProcess(args={"verbosity": 1}, env={"CUDA_VISIBLE_DEVICES": ""})})

    Attributes:
      args: Command-line flags that the worker sees in `sys.argv`, `{"seed": 1}` as `--seed=1`.
      env: Environment variables; a variable may be set here or in the group's Resources, not in both.
      python: Another interpreter to run the worker with; it must have launchpad and your code.
    """

    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    python: str = ""

    def argv(self) -> tuple[str, ...]:
        """The flags as they stand on a command line."""
        return tuple(f"--{name}={value}" for name, value in self.args.items())
