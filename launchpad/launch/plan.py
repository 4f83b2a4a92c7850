"""The plan: the workers that will run, with their endpoints and resources, as data that can be printed.

Program ──plan──▶ LaunchPlan, with a WorkerPlan for each worker ──launch──▶ WorkerSpec ──▶ …
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from launchpad.courier import formatting
from launchpad.courier.light_dataclass import dataclass
from launchpad.edges.recording import Ordering
from launchpad.errors import DefinitionError
from launchpad.graph.graph import Edge, Graph, Vertex
from launchpad.launch.devices.device import listed
from launchpad.launch.large_buffers import LargeBuffer, Openable
from launchpad.program import UNTIL_RUN
from launchpad.resources import Resources
from launchpad.restart_policy import NO_RESTARTS, RestartPolicy


@dataclass(frozen=True)
class ProcessPlan:
    """The start of a worker's process.

    Attributes:
        env, args: The process's own environment variables and command-line flags.
        python: Another interpreter to run the process with; empty for the launcher's interpreter.
        preload: Modules that are imported before the process is forked.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    python: str = ""
    preload: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerPolicy:
    """The rules for a worker: how it serves, when it ends, and what follows.

    Attributes:
        restart: When the worker is started again, and how often.
        main: True if the worker is in a main group. When all workers of main groups have ended, the program
            ends.
        ordering: The order in which its server serves calls; None if that is the order in which they come.
        serves_until: How long the worker goes on serving when its own work has ended; see `Program.group`.
        stops_last: True if the worker is asked to stop after the others.
        pdb: True if the worker waits for `launchpad attach` when it fails.
    """

    restart: RestartPolicy = NO_RESTARTS
    main: bool = False
    ordering: Ordering | None = None
    serves_until: str = UNTIL_RUN
    stops_last: bool = False
    pdb: bool = False


@dataclass(frozen=True)
class Payload:
    """The pickled code and data of a worker.

    Attributes:
        stream: The worker's executable.
        buffers: The bytes of large arrays, in the order in which the stream refers to them.
        setup: Functions that run first, pickled.
    """

    stream: bytes = b""
    buffers: tuple[Openable, ...] = ()
    setup: tuple[bytes, ...] = ()

    @property
    def nbytes(self) -> int:
        """The size of the executable, with its buffers."""
        return len(self.stream) + sum(buffer.nbytes for buffer in self.buffers)


@dataclass(frozen=True)
class WorkerPlan:
    """One worker: an executable with its addresses and resources.

    Example:
        for worker in lp.plan(program, "local_mp").workers:
            print(worker.name, worker.kind, worker.calls, worker.gpus)

    Attributes:
        name: The name, unique in the program: `actor-3`; `trainer-0.1` for a part of a colocation.
        kind: A short form of the node's constructor, such as `CourierNode(Actor)`.
        calls: The workers whose handles it holds.
        endpoints: Address name → endpoint, for the addresses it owns.
        resources: The resources that its group asks for.
        gpus: The GPUs that the worker was given, in the form of CUDA_VISIBLE_DEVICES. If Ray assigns the
            GPUs, only the worker itself can see which.
        cpus: The numbers of the CPUs that it may run on; empty for any.
    """

    name: str
    group: str
    replica_index: int
    num_replicas: int
    kind: str
    seed: int
    calls: tuple[str, ...] = ()
    endpoints: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    gpus: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    process: ProcessPlan = ProcessPlan()
    policy: WorkerPolicy = WorkerPolicy()
    added_at: str = ""
    payload: Payload = field(default=Payload(), repr=False)

    @property
    def colocation(self) -> str:
        """The colocation of which this is one process, such as `trainer-0`; empty for other workers."""
        replica = f"{self.group}-{self.replica_index}"
        return replica if self.name.startswith(f"{replica}.") else ""

    @property
    def payload_bytes(self) -> int:
        """The size of its payload, including the buffers that the payload refers to."""
        return self.payload.nbytes

    def grace_s(self, usual_s: float) -> float:
        """Return how long the worker may take to stop: what its policy says, else `usual_s`.

        A negative number means that there is no limit.
        """
        own_s = self.policy.restart.stop_grace_s
        return usual_s if own_s is None else own_s

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the pickled data in one flat dict, with the size of the payload."""
        values = {**vars(self), **vars(self.process), **vars(self.policy)}
        plain = {
            name: _plain(value)
            for name, value in values.items()
            if name not in ("process", "policy", "payload")
        }
        return {
            **plain,
            "ordering": repr(self.policy.ordering) if self.policy.ordering else "",
            "resources": self.resources.to_dict(),
            "restart": vars(self.policy.restart),
            "payload_bytes": self.payload_bytes,
        }


@dataclass(frozen=True)
class LaunchPlan:
    """All workers of a program on one backend, as `lp.plan` returns them. Nothing has been started.

    Example:
        print(lp.plan(program, "local_mp"))
        json.dump(lp.plan(program, "local_mp").to_dict(), file)

    Attributes:
        workers: The workers, in the order in which they are started.
        uids: Address uid → address name. Through it, a handle in the script finds its endpoint.
        client_options: Address name → the options that its node sets for clients.
        modules: Modules of launchpad that workers need. A forkserver imports them once.
        state: The path or URL of the folder in which workers save their state; empty for a folder beside the
            logs.
        notes: What the user should know about the plan, a line each.
    """

    program: str
    launch_type: str
    workers: tuple[WorkerPlan, ...]
    uids: Mapping[str, str] = field(default_factory=dict, repr=False)
    client_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    modules: tuple[str, ...] = field(default=(), repr=False)
    state: str = ""
    notes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def preload(self) -> tuple[str, ...]:
        """The modules that must be imported before workers are forked."""
        return tuple(dict.fromkeys(m for w in self.workers for m in w.process.preload))

    @property
    def large_buffers(self) -> list[LargeBuffer]:
        """The buffers that its payloads refer to, each once."""
        buffers = (buffer for worker in self.workers for buffer in worker.payload.buffers)
        return list(dict.fromkeys(buffer for buffer in buffers if isinstance(buffer, LargeBuffer)))

    @property
    def groups(self) -> dict[str, list[WorkerPlan]]:
        """The workers of each group, by label."""
        groups: dict[str, list[WorkerPlan]] = {}
        for worker in self.workers:
            groups.setdefault(worker.group, []).append(worker)
        return groups

    @property
    def endpoints(self) -> dict[str, str]:
        """The endpoints of all workers, by address name."""
        return {name: at for worker in self.workers for name, at in worker.endpoints.items()}

    @property
    def buffer_files(self) -> list[int]:
        """The descriptors of files that already hold buffers. Forkservers inherit these descriptors."""
        places = (buffer.in_file for buffer in self.large_buffers)
        return sorted({place.fd for place in places if place is not None})

    def release_buffers(self) -> None:
        """Release the memory that the payloads refer to. No worker can be started from this plan any more."""
        for buffer in self.large_buffers:
            buffer.release()

    def worker(self, name: str) -> WorkerPlan:
        """Return the worker with this name.

        Raises:
            KeyError: no worker has this name.
        """
        for worker in self.workers:
            if worker.name == name:
                return worker
        raise KeyError(f"program {self.program!r} has no worker {name!r}")

    def graph(self) -> Graph:
        """Return the graph of the workers and of the calls between them, as `Program.graph()` does."""
        nodes = tuple(
            Vertex(w.name, w.group, w.kind, w.added_at, "colocation" if w.colocation else "")
            for w in self.workers
        )
        edges = tuple(Edge(w.name, target, "") for w in self.workers for target in w.calls)
        return Graph(self.program, nodes, edges)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, ready for JSON."""
        workers = [worker.to_dict() for worker in self.workers]
        return {"program": self.program, "launch_type": self.launch_type, "workers": workers}

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON."""
        import json

        return json.dumps(self.to_dict(), indent=indent)

    def to_yaml(self) -> str:
        """Return the cluster's objects for this plan, in the form that `kubectl apply -f -` takes.

        Raises:
            DefinitionError: the plan's launch type doesn't make cluster objects.
        """
        raise DefinitionError(
            f"only a plan for 'kubernetes' has manifests, not one for {self.launch_type!r}; to_json() gives"
            " all of it"
        )

    def shown(self) -> str:
        """Return what `python -m launchpad plan` prints: this table, or the objects for a cluster."""
        return str(self)

    def __str__(self) -> str:
        columns = {"WORKER": [w.name for w in self.workers], "NODE": [w.kind for w in self.workers]}
        lists = {
            "ENDPOINTS": [tuple(w.endpoints.values()) for w in self.workers],
            "CALLS": [w.calls for w in self.workers],
        }
        for name, cells in lists.items():
            columns[name] = [
                ", ".join(items[:3]) + (f", … ({len(items)})" if len(items) > 3 else "") or "-"
                for items in cells
            ]
        columns["PAYLOAD"] = [f"{w.payload_bytes:,} B" for w in self.workers]
        if any(w.resources.asked() for w in self.workers):
            columns["RESOURCES"] = [
                (w.resources.asked() or "-") + (f" ({listed(w.gpus)})" if w.gpus else "")
                for w in self.workers
            ]
        rows = [tuple(columns), *zip(*columns.values(), strict=True)]
        headline = f"program {self.program!r} on {self.launch_type}: {len(self.workers)} workers"
        return "\n  ".join([f"plan of {headline}", *formatting.aligned(rows)])


def _plain(value: Any) -> Any:
    """Return a value of a plan's field as JSON has it: mappings as dicts, and tuples as lists."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    return value


def seed_of(program: str, worker: str) -> int:
    """Return a seed below 2**32 that depends only on the names, so it is the same at every launch."""
    return int.from_bytes(hashlib.sha256(f"{program}/{worker}".encode()).digest()[:4], "big")
