"""Imports point down; this is the order, lowest first. All count, also lazy ones and those for types."""

from __future__ import annotations

from pathlib import Path

import pytest

import launchpad
from tests import structure

PACKAGE = Path(launchpad.__file__).parent

COURIER = [
    "checks explained formatting light_dataclass interruptions log own_threads trees",
    "errors extras fork deadlines buffers promise",
    "call_stack caller",
    "protocol security periodic_checks",
    "codec",
    "transport",
    "shm telemetry",
    "call_deadlock streams",
    "client server",
    "batching grpc opentelemetry",
]
KUBERNETES = [
    "settings pod_messages",
    "api pod_inputs",
    "manifests",
    "pod pod_status",
    "create_run",
    "attempt",
    "missing_pods open_files termination",
    "pod_workers",
    "detached",
    "backend",
    "launcher_pod",
]


def below(folder: str, layers: list[str]) -> list[str]:
    """The same with the folder before each name."""
    return [" ".join(f"{folder}.{name}" for name in names.split()) for names in layers]


LAUNCH = [
    "excepthook signals devices logs large_buffers",
    "plan",
    "rundir",
    "detached output",
    "backends.action_thread backends.backend",
    "planning",
    "backends.launcher_info backends.local_backend",
    "backends.address_table",
    "worker",
    "supervision",
    "running",
    "remote_launcher",
    "backends.processes backends.threads",
    "backends.remote",
    "backends.ray backends.slurm backends.spark backends.ssh",
    *below("backends.kubernetes", KUBERNETES),
    "registry script_exit view_process",
    "exit_hooks script_flags",
    "launch",
]
LAYERS = [
    *below("courier", COURIER),
    "courier outcome",
    "errors other_names telemetry",
    "command_line state edges",
    "flags",
    "resources restart_policy traverse",
    "runtime",
    "address handle services",
    "pools work_queues counters",
    "nodes",
    "collectives queues replay",
    "graph",
    "program",
    "compat",
    *below("launch", LAUNCH),
    "simulation testing view.looks view.access",
    "view.live_graph view.status_lines view.terminal view.time_line view.watched_run",
    "view.pages",
    "view.server",
    "cli",
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms.split()}

# `import launchpad` and `python -m launchpad` are doors to all of it; the others are empty.
DOORS = {"", "__main__", "view", "launch", "launch.backends", "launch.backends.kubernetes"}


@pytest.fixture(scope="module")
def imports() -> list[tuple[str, str]]:
    """Importing module, imported module; names below the package."""
    return list(structure.imports(PACKAGE))


def test_every_room_belongs_to_a_layer() -> None:
    assert set(structure.rooms(PACKAGE).values()) - DOORS == set(LEVEL)


def test_imports_point_down(imports: list[tuple[str, str]]) -> None:
    room_of = structure.rooms(PACKAGE)
    up = [
        f"{importing} imports {imported}"
        for importing, imported in imports
        if (a := room_of[importing]) != (b := room_of[imported])
        and a not in DOORS
        and not LEVEL[b] < LEVEL[a]
    ]

    assert up == []


def test_only_the_registry_loads_backends_which_know_no_programs(
    imports: list[tuple[str, str]],
) -> None:
    """By name, as nothing else imports one but for the interface, `launch.backends.backend`."""
    knows = [
        (importing, imported)
        for importing, imported in imports
        if importing.startswith("launch.backends.") and imported.startswith(("nodes", "program"))
    ]
    loads = [
        (importing, imported)
        for importing, imported in imports
        if imported.startswith("launch.backends.")
        and imported != "launch.backends.backend"
        and not importing.startswith("launch.backends")
    ]

    assert (knows, loads) == ([], [])


def test_no_two_classes_have_the_same_name() -> None:
    assert structure.twice_named_classes(PACKAGE) == {}


def test_no_files_import_each_other_in_a_circle() -> None:
    assert structure.circles_of_files(PACKAGE) == []
