"""What a launch was given of each group's resources, in addition to the program's own.

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
class LaunchOverrides:
    """What was given, by label. Made by `to`, which checks it."""

    processes: Mapping[str, PythonProcess]
    at_launch: Mapping[str, Resources]

    @classmethod
    def to(
        cls,
        program: Program,
        processes: Mapping[str, PythonProcess] | None,
        resources: Mapping[str, Resources] | None,
    ) -> LaunchOverrides:
        """What a launch of this program was given.

        Raises:
            DefinitionError: it is for a group that the program does not have, or of the wrong kind.
        """
        return cls(
            checked("local_resources", processes, PythonProcess, program),
            checked("resources", resources, Resources, program),
        )

    def process(self, group: Group) -> PythonProcess:
        """How local processes of a group are started."""
        return self.processes.get(group.label, PythonProcess())

    def resources(self, group: Group) -> Resources:
        """What each worker of a group gets."""
        return self.at_launch.get(group.label, group.resources)

    def environment(self, group: Group) -> dict[str, str]:
        """The group's variables; one that is set by two sources is a DefinitionError."""
        env: dict[str, str] = {}
        origin: dict[str, str] = {}
        for source, given in self._sources(group).items():
            for name, value in given.env.items():
                if name in env:
                    values = {origin[name]: env[name], source: str(value)}
                    raise _set_twice(f"the environment variable {name}", group, values)
                env[name], origin[name] = str(value), source
        gpus = self.resources(group).gpus
        if gpus and VISIBLE in env:
            values = {
                origin[VISIBLE]: env[VISIBLE],
                f"Resources(gpus={gpus:g})": "the GPUs it gets",
            }
            raise _set_twice(f"the environment variable {VISIBLE}", group, values)
        return env

    def python(self, group: Group) -> str:
        """The group's interpreter; one that is set by two sources is a DefinitionError."""
        set_by = {
            source: given.python for source, given in self._sources(group).items() if given.python
        }
        if len(set_by) > 1:
            raise _set_twice("the Python", group, set_by)
        return next(iter(set_by.values()), "")

    def _sources(self, group: Group) -> dict[str, Resources | PythonProcess]:
        """The text in a user's program that sets something for a group → what it sets."""
        at_launch = f"resources={{{group.label!r}: …}} at launch"
        in_group = f"program.group({group.label!r}, resources=…)"
        return {
            at_launch if group.label in self.at_launch else in_group: self.resources(group),
            f"local_resources[{group.label!r}]": self.process(group),
        }


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


def _set_twice(what: str, group: Group, values: Mapping[str, str]) -> DefinitionError:
    listed = ", and ".join(f"{value!r} by {source}" for source, value in values.items())
    return DefinitionError(
        f"{what} of group {group.label!r} is set by two sources: {listed}. Keep one."
    )
