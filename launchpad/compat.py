"""Names that exist only for programs written for dm-launchpad.

`docs/coming_from_dm_launchpad.md` compares the two libraries. Methods that exist only for such programs are
defined in their class: `Bind`, `Start`, `Stop` and the like of `courier.Server`; `Running.wait(labels)` and
`Running.stop_and_wait`.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from launchpad.errors import DefinitionError
from launchpad.program import Program
from launchpad.resources import PythonProcess
from launchpad.runtime import context
from launchpad.runtime.stopping import stop

LaunchContext = context.RunContext
get_context = context.current

MEANINGLESS = ("serialize_py_nodes", "controller_xm_requirements")
"""Launch options that have no effect: nodes are always serialised, and XManager is not supported."""


def without_meaningless(options: Mapping[str, Any], xm_resources: None) -> dict[str, Any]:
    """Return the launch options without those that have no effect here.

    Raises:
        DefinitionError: one of the dropped options has a value that would have an effect in dm-launchpad.
    """
    if xm_resources is not None or options.get("controller_xm_requirements") is not None:
        raise DefinitionError(
            "xm_resources and controller_xm_requirements mean nothing here; leave them out"
        )
    if options.get("serialize_py_nodes") is False:
        raise DefinitionError(
            "serialize_py_nodes=False asks for nodes to share objects, and here each has copies of its own,"
            " in threads too: leave it out, and let a CourierNode serve what they share"
        )
    return {name: value for name, value in options.items() if name not in MEANINGLESS}


def of_groups(
    local_resources: Mapping[str, Any] | None, program: Program
) -> dict[str, PythonProcess]:
    """Return `local_resources` for the program's groups, read as dm-launchpad reads it.

    Leave out labels whose value is false, and warn about labels that the program doesn't have.
    """
    by_label = {label: value for label, value in (local_resources or {}).items() if value}
    for label in [label for label in by_label if label not in program.groups]:
        warnings.warn(
            f"local_resources[{label!r}] is for no group of program {program.name!r}, which has"
            f" {', '.join(program.groups)}",
            stacklevel=4,
        )
        del by_label[label]
    return by_label


def make_program_stopper(launch_type: object = None) -> Callable[..., None]:
    """Return a function that stops the program.

    `launch_type` is accepted but ignored; in dm-launchpad a stopper depends on it.

    Example:
        stopper = lp.make_program_stopper()
        stopper(mark_as_completed=True)         # as lp.stop()
    """

    def stopper(mark_as_completed: bool = False) -> None:
        stop("marked as completed" if mark_as_completed else "")

    return stopper


class AbstractAddressBuilder(abc.ABC):
    """The base of classes that choose an endpoint, for programs that assign addresses by themselves.

    Example:
        class FixedPort(lp.AbstractAddressBuilder):
            def build(self) -> str:
                return "localhost:8080"
    """

    @abc.abstractmethod
    def build(self) -> str:
        """Return the endpoint, `host:port`."""


class SimpleLocalAddressBuilder(AbstractAddressBuilder):
    """An address builder that picks a free TCP port of this host.

    Example:
        port = lp.get_port_from_address(lp.SimpleLocalAddressBuilder().build())
    """

    def build(self) -> str:
        """Return `localhost:port`, with a port that was free a moment ago."""
        import portpicker

        return f"localhost:{portpicker.pick_unused_port()}"
