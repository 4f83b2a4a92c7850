"""What the workers of a group get: from the program, and from what its launch was given by label.

program.group("actor", resources=…)   ┐ one of the two: what is given at launch
launch(resources={"actor": …})        ┘ counts, in the place of all that the group has
launch(local_resources={"actor": …})    is added; nothing may be set by both
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from launchpad.errors import DefinitionError
from launchpad.launch.devices.device import VISIBLE
from launchpad.program import Group, Program
from launchpad.resources import PythonProcess, Resources

_T = TypeVar("_T")


@dataclass(frozen=True)
class GroupSettings:
    """What the workers of one group get: environment variables, flags, a Python and resources."""

    env: dict[str, str]
    args: tuple[str, ...]
    python: str
    resources: Resources

    @classmethod
    def of(
        cls,
        group: Group,
        processes: Mapping[str, PythonProcess],
        at_launch: Mapping[str, Resources],
    ) -> GroupSettings:
        """Those of the group and of its launch together.

        Raises:
            DefinitionError: something is set by two sources.
        """
        label = group.label
        process = processes.get(label, PythonProcess())
        resources = at_launch.get(label, group.resources)
        # The text in a user's program that sets something → what it sets.
        sources: dict[str, Resources | PythonProcess] = {
            f"resources={{{label!r}: …}} at launch"
            if label in at_launch
            else f"program.group({label!r}, resources=…)": resources,
            f"local_resources[{label!r}]": process,
        }
        env: dict[str, str] = {}
        origin: dict[str, str] = {}
        for source, given in sources.items():
            for name, value in given.env.items():
                if name in env:
                    values = {origin[name]: env[name], source: str(value)}
                    raise _set_twice(f"the environment variable {name}", label, values)
                env[name], origin[name] = str(value), source
        if resources.gpus and VISIBLE in env:
            of_gpus = f"Resources(gpus={resources.gpus:g})"
            values = {origin[VISIBLE]: env[VISIBLE], of_gpus: "the GPUs it gets"}
            raise _set_twice(f"the environment variable {VISIBLE}", label, values)
        pythons = {source: given.python for source, given in sources.items() if given.python}
        if len(pythons) > 1:
            raise _set_twice("the Python", label, pythons)
        return cls(env, process.argv(), next(iter(pythons.values()), ""), resources)


def checked(
    name: str, given: Mapping[str, _T] | None, kind: type[_T], program: Program
) -> dict[str, _T]:
    """What launch was given by label; DefinitionError: a wrong type, or a label the program does not have."""
    for label, value in (given or {}).items():
        if label not in program.groups:
            raise DefinitionError(
                f"{name} names a group {label!r};"
                f" program {program.name!r} has {list(program.groups)}"
            )
        if not isinstance(value, kind):
            raise DefinitionError(f"{name}[{label!r}] must be lp.{kind.__name__}(…), got {value!r}")
    return dict(given or {})


def _set_twice(what: str, label: str, values: Mapping[str, str]) -> DefinitionError:
    listed = ", and ".join(f"{value!r} by {source}" for source, value in values.items())
    return DefinitionError(f"{what} of group {label!r} is set by two sources: {listed}. Keep one.")
