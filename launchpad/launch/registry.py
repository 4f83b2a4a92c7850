"""The backends by launch type. No other place names the backends.

A package adds a backend of its own with an entry point in its pyproject.toml. Nothing in launchpad changes:

    [project.entry-points."launchpad.backends"]
    my_cluster = "my_package.backend:MyCluster"
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from launchpad import command_line
from launchpad.courier.explained import hint_for
from launchpad.errors import DefinitionError, LaunchError
from launchpad.launch.backends.backend import Backend

if TYPE_CHECKING:
    from launchpad.launch.detached import Detached

ENTRY_POINTS = "launchpad.backends"

_BUILT_IN = {
    "local_mt": "launchpad.launch.backends.threads:Threads",
    "local_mp": "launchpad.launch.backends.processes.backend:Processes",
    "test_mt": "launchpad.launch.backends.threads:TestThreads",
    "test_mp": "launchpad.launch.backends.processes.backend:TestProcesses",
    "ray": "launchpad.launch.backends.ray.backend:Ray",
    "test_ray": "launchpad.launch.backends.ray.backend:TestRay",
    "spark": "launchpad.launch.backends.spark.backend:Spark",
    "test_spark": "launchpad.launch.backends.spark.backend:TestSpark",
    "ssh": "launchpad.launch.backends.ssh.backend:Ssh",
    "test_ssh": "launchpad.launch.backends.ssh.backend:TestSsh",
    "slurm": "launchpad.launch.backends.slurm.backend:Slurm",
    "test_slurm": "launchpad.launch.backends.slurm.backend:TestSlurm",
    "kubernetes": "launchpad.launch.backends.kubernetes.backend:Kubernetes",
    "test_kubernetes": "launchpad.launch.backends.kubernetes.backend:TestKubernetes",
}
_STARTED_EARLY = {
    "local_mp": "launchpad.launch.backends.processes.forkserver_handle",
    "test_mp": "launchpad.launch.backends.processes.forkserver_handle",
}
"""Launch type → a module. A launch calls the module's `start` first, and gives the result to the backend."""

_LOCAL = ("local_mt", "local_mp", "test_mt", "test_mp")


class LaunchType(enum.Enum):
    """The way to run a program. A backend of another package is given by its name, as a string.

    Example:
        lp.launch(program, lp.LaunchType.LOCAL_MULTI_PROCESSING)        # "local_mp"
    """

    LOCAL_MULTI_THREADING = "local_mt"
    LOCAL_MULTI_PROCESSING = "local_mp"
    LOCAL_MT = "local_mt"
    LOCAL_MP = "local_mp"
    TEST_MULTI_THREADING = "test_mt"
    TEST_MULTI_PROCESSING = "test_mp"
    RAY = "ray"
    TEST_RAY = "test_ray"
    SPARK = "spark"
    TEST_SPARK = "test_spark"
    SSH = "ssh"
    TEST_SSH = "test_ssh"
    SLURM = "slurm"
    TEST_SLURM = "test_slurm"
    KUBERNETES = "kubernetes"
    TEST_KUBERNETES = "test_kubernetes"


class UnknownOption(DefinitionError):
    """A backend doesn't take an option.

    Attributes:
        option: The name of the option.
        known: The names of those that the backend takes.
    """

    def __init__(self, launch_type: str, option: str, known: Iterable[str]) -> None:
        super().__init__(
            f"lp.launch takes no argument {option!r} with launch type {launch_type!r}."
        )
        self.option = option
        self.known = tuple(known)


def launch_type_name(launch_type: LaunchType | str | None) -> str:
    """Return the launch type to use: given, else --lp_launch_type, else $LP_LAUNCH_TYPE, else local_mt."""
    if isinstance(launch_type, LaunchType):
        return str(launch_type.value)
    by_flag = command_line.given(command_line.LAUNCH_TYPE)
    return (
        launch_type
        or by_flag
        or os.environ.get("LP_LAUNCH_TYPE")
        or command_line.read(command_line.LAUNCH_TYPE)
    )


def backend_of(name: str, options: Mapping[str, Any] = MappingProxyType({})) -> Backend:
    """Import the backend of a launch type, and return an instance.

    Args:
        options: Its options, such as an `image` for `kubernetes`.

    Raises:
        UnknownOption: the backend takes no such option.
        DefinitionError: no such name is registered, or an option has a wrong value.
        LaunchError: what is registered cannot be imported, or is not a Backend.
    """
    target = target_of(name)
    module, _, attribute = target.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise LaunchError(
            f"launch type {name!r} is {target}, which cannot be loaded: {error}"
        ) from error
    try:
        backend = kind(**options)
    except TypeError as error:
        if not options:
            raise
        known = inspect.signature(kind).parameters
        unknown = [option for option in options if option not in known]
        takes_others = any(each.kind is each.VAR_KEYWORD for each in known.values())
        if unknown and not takes_others:
            raise UnknownOption(name, unknown[0], known) from None
        listed = ", ".join(map(repr, options))
        raise DefinitionError(f"launch type {name!r} does not take {listed}: {error}") from error
    if not isinstance(backend, Backend):
        raise LaunchError(f"launch type {name!r} is {target}, which is no launchpad.Backend")
    return backend


def target_of(name: str) -> str:
    """Return where a launch type's backend is, as `module:class`, without importing it.

    Raises:
        DefinitionError: no such name is registered.
    """
    target = _BUILT_IN.get(name) or _third_party().get(name)
    if target is None:
        names = sorted({*_BUILT_IN, *_third_party()})
        raise DefinitionError(
            f"there is no launch type {name!r}; there are {', '.join(names)}."
            f"{hint_for(name.lower(), map(repr, names), 'launchpad.other_names:LAUNCH_TYPE_NAMES')}"
        )
    return target


@contextlib.contextmanager
def started_early(name: str) -> Iterator[Any]:
    """Start a process that needs no plan, so that it comes up while the plan is made.

    Yield what stands for the process, or None if the launch type has no such process. If the process has not
    been used when the block ends, it is ended.

    Raises:
        LaunchError: the process cannot be started.
    """
    if name not in _STARTED_EARLY:
        yield None
        return
    early = importlib.import_module(_STARTED_EARLY[name]).start()
    try:
        yield early
    finally:
        if not early.is_used:
            early.end()


def detached(warn: Callable[[str], object] = lambda why: None) -> list[Detached]:
    """Return the detached programs on all clusters. Call `warn` with the reason if some cannot be found."""
    programs: list[Detached] = []
    for name in (*_BUILT_IN, *_third_party()):
        if not name.startswith("test_"):
            try:
                programs += backend_of(name).detached()
            except (LaunchError, DefinitionError) as error:  # a file of settings may hold mistakes
                warn(str(error))
    return programs


def is_local_launch(launch_type: LaunchType | str) -> bool:
    """Return True for `local_mt` and `local_mp`.

    Example:
        folder = "/tmp/logs" if lp.is_local_launch("local_mp") else "/shared/logs"
    """
    return launch_type_name(launch_type) in ("local_mt", "local_mp")


def is_local_launch_or_test(launch_type: LaunchType | str) -> bool:
    """Return True for launch types that run on this host, tests included.

    Example:
        assert lp.is_local_launch_or_test("test_mp")
    """
    return launch_type_name(launch_type) in _LOCAL


def _third_party() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
