"""TorchOperations: collective operations through torch.distributed, with gloo on CPUs and nccl on GPUs.

Each rank has a torch group of its own, and does not use torch's default group, because a process has only one
default group. So the operations also work if workers are threads. A TorchOperations object has the only
reference to its group: when the object is closed, the group's threads end.

gloo cannot reduce all of numpy's types. The others are reduced as a type that gives the same bits:

    int16, uint16        as int32
    uint32               as int64
    uint64               as int64: sum and prod give the same bits; for max and min, the first bit is flipped
    complex, prod        the arrays are gathered, and multiplied in each rank
"""

from __future__ import annotations

import functools
import pickle
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import (  # type: ignore[attr-defined, unused-ignore]
    AllgatherOptions,
)

from launchpad.collectives import network
from launchpad.collectives.freeing import cause_of, in_thread
from launchpad.collectives.generation import Generation
from launchpad.collectives.operations import Operations
from launchpad.collectives.stuck import StuckWatch
from launchpad.collectives.torch_store import TorchStores
from launchpad.errors import Stopped
from launchpad.runtime import context

_LOOK_S = 0.2
"""Seconds after which a wait in C++ is interrupted in order to check if the program stops."""

_LAST_S = 3.0
"""Seconds to wait for the last data from a rank whose function has returned."""

_MARGIN_S = 10.0
"""Seconds by which torch's timeout is longer than ours, so that our error comes first."""

_OPTIONS: dict[str, Any] = {
    "allreduce": dist.AllreduceOptions,
    "broadcast": dist.BroadcastOptions,
    "_allgather_base": AllgatherOptions,
    "_reduce_scatter_base": dist.ReduceScatterOptions,
    "alltoall_base": dist.AllToAllOptions,
}
_OPS = {"sum": "SUM", "prod": "PRODUCT", "max": "MAX", "min": "MIN"}
_AS = {"int16": np.int32, "uint16": np.int32, "uint32": np.int64}
_FLIP = np.uint64(1 << 63)


class TorchOperations(Operations):
    """The operations of one rank, through torch.distributed.

    Args:
        backend: `gloo` or `nccl`.
        stores: The stores in which the ranks find each other.
        generation: The generation of the ranks.
        ranks: The ranks that take part, by their numbers in the generation.
        timeout_s: How long an operation may wait.
        name: The name of the group, unique in its generation.
    """

    def __init__(
        self,
        backend: str,
        stores: TorchStores,
        generation: Generation,
        ranks: tuple[int, ...],
        timeout_s: float,
        name: str = "operations",
    ) -> None:
        self._backend = backend
        self._stores = stores
        self._generation = generation
        self._ranks = ranks
        self._timeout_s = timeout_s
        self._name = name
        self.rank = ranks.index(generation.rank)
        self.size = len(ranks)
        self.takes_tensors = backend == "nccl"
        self._device = "cuda" if backend == "nccl" else "cpu"
        address = network.own_address(context.current())
        self._group: Any = in_thread(generation, lambda: self._connect(address))
        self._watch = StuckWatch(generation)
        self._parts: list[TorchOperations] = []
        if backend == "nccl":
            generation.on_end(lambda error: self._abort())
            generation.on_stop(self._abort)

    def all_reduce(self, flat: Any, op: str, out: Any) -> None:
        if isinstance(flat, np.ndarray) and (flat.dtype.name in _AS or flat.dtype == np.uint64):
            self._all_reduce_as_another(flat, op, out)
            return
        if op == "prod" and isinstance(flat, np.ndarray) and flat.dtype.kind == "c":
            out[...] = functools.reduce(np.multiply, self.all_gather(flat))
            return
        if out is not flat:
            out[...] = flat
        tensor = self._tensor(out)
        self._run("allreduce", [tensor], op=op)
        _bring_back(tensor, out)

    def reduce_scatter(self, flat: Any, op: str, bounds: Sequence[int]) -> Any:
        begin = bounds[self.rank]
        end = bounds[self.rank + 1]
        if self._backend == "nccl" and len(flat) == (end - begin) * self.size:
            part = torch.empty(end - begin, dtype=flat.dtype, device=flat.device)
            self._run("_reduce_scatter_base", part, flat, op=op)
            return part
        out = flat.copy() if isinstance(flat, np.ndarray) else flat.clone()
        self.all_reduce(out, op, out)
        return out[begin:end]

    def all_gather(self, flat: Any) -> list[Any]:
        own_bytes = self._tensor(_as_bytes(flat))
        all_bytes = torch.empty(
            len(own_bytes) * self.size, dtype=own_bytes.dtype, device=self._device
        )
        self._run("_allgather_base", all_bytes, own_bytes)
        return [_like(row, flat) for row in all_bytes.view(self.size, len(own_bytes))]

    def broadcast(self, flat: Any, root: int) -> None:
        data = _as_bytes(flat)
        tensor = self._tensor(data)
        self._run("broadcast", [tensor], root=root)
        _bring_back(tensor, data)

    def all_to_all(self, parts: Sequence[Any]) -> list[Any]:
        tensors = [self._tensor(_as_bytes(part.reshape(-1))) for part in parts]
        header = [(len(data), tuple(part.shape)) for data, part in zip(tensors, parts, strict=True)]
        headers = [pickle.loads(data) for data in self.all_gather_bytes(pickle.dumps(header))]
        sizes, shapes = zip(*(theirs[self.rank] for theirs in headers), strict=True)
        received = torch.empty(sum(sizes), dtype=torch.uint8, device=self._device)
        self._run(
            "alltoall_base", received, torch.cat(tensors), list(sizes), [len(s) for s in tensors]
        )
        pieces = torch.split(received, list(sizes))
        return [
            _like(piece, parts[0]).reshape(shape)
            for piece, shape in zip(pieces, shapes, strict=True)
        ]

    def barrier(self, name: str, timeout_s: float) -> None:
        tensor = torch.zeros(1, dtype=torch.uint8, device=self._device)
        self._run("allreduce", [tensor], op="sum", timeout_s=timeout_s, name=f"barrier {name!r}")
        if self._backend == "nccl":
            torch.cuda.current_stream().synchronize()

    def broadcast_bytes(self, data: bytes, root: int) -> bytes:
        size = np.array([len(data)])
        self.broadcast(size, root)
        array = np.frombuffer(bytearray(data if self.rank == root else int(size[0])), np.uint8)
        self.broadcast(array, root)
        return array.tobytes()

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        sizes = [int(size[0]) for size in self.all_gather(np.array([len(data)]))]
        padded = np.frombuffer(bytearray(data.ljust(max(sizes), b"\0")), np.uint8)
        gathered = self.all_gather(padded)
        return [row[:size].tobytes() for row, size in zip(gathered, sizes, strict=True)]

    def gather_bytes(self, data: bytes, root: int) -> list[bytes] | None:
        gathered = self.all_gather_bytes(data)
        return gathered if self.rank == root else None

    def part(self, name: str, ranks: tuple[int, ...]) -> TorchOperations:
        part = TorchOperations(
            self._backend,
            self._stores,
            self._generation,
            tuple(self._ranks[rank] for rank in ranks),
            self._timeout_s,
            f"{self._name}/{name}",
        )
        self._parts.append(part)
        return part

    def close(self) -> None:
        for part in self._parts:
            part.close()
        # This deletes the group, and waits for gloo's threads. Keep the watch until then.
        self._group = None
        self._watch.close()

    def _abort(self) -> None:
        """Abort the nccl group, to free the threads that wait in it."""
        group = self._group
        if group is not None:
            group.abort()

    def _connect(self, address: str) -> Any:
        store = self._stores.new(self._name)
        timeout = timedelta(seconds=self._timeout_s)
        if self._backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            return dist.ProcessGroupNCCL(store, self.rank, self.size, options)
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=address)]
        options._timeout = timeout
        return gloo(store, self.rank, self.size, options)

    def _tensor(self, flat: Any) -> Any:
        """Return the array as a tensor on the group's device.

        If the array is on this device already, the tensor has the same memory.
        """
        if isinstance(flat, np.ndarray):
            flat = torch.from_numpy(flat if flat.flags.writeable else flat.copy())
        return flat.to(self._device)

    def _all_reduce_as_another(self, flat: Any, op: str, out: Any) -> None:
        if flat.dtype != np.uint64:
            wide_array = flat.astype(_AS[flat.dtype.name])
            self.all_reduce(wide_array, op, wide_array)
            out[...] = wide_array.astype(out.dtype)
            return
        flip = _FLIP if op in ("max", "min") else np.uint64(0)
        signed_array = (flat ^ flip).view(np.int64)
        self.all_reduce(signed_array, op, signed_array)
        out[...] = signed_array.view(np.uint64) ^ flip

    def _run(
        self,
        operation: str,
        *arguments: Any,
        op: str = "",
        root: int | None = None,
        timeout_s: float | None = None,
        name: str = "",
    ) -> None:
        """Run an operation of torch. Wait until it has ended, or until it can no longer succeed."""
        self._generation.check()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        options = _OPTIONS[operation]()
        options.timeout = timedelta(seconds=limit_s + _MARGIN_S)
        if op:
            options.reduceOp = getattr(dist.ReduceOp, _OPS[op])
        if root is not None:
            options.rootRank = root
        try:
            work = getattr(self._group, operation)(*arguments, options)
            if self._backend == "nccl":
                work.wait()
                # Check this, because an aborted operation may end without an error.
                self._generation.check()
                return
            self._wait(work, name or operation, limit_s)
        except RuntimeError as error:
            cause = cause_of(error, self._generation)
            if cause is None:
                raise
            raise cause from error

    def _wait(self, work: Any, name: str, limit_s: float) -> None:
        """Wait for an operation of gloo, in short waits. A wait in gloo can time out and be repeated."""
        generation = self._generation
        began = time.monotonic()
        returned_at = None
        while True:
            now = time.monotonic()
            left_s = began + limit_s - now
            try:
                work.wait(timedelta(seconds=max(0.001, min(_LOOK_S, left_s))))
                return
            except RuntimeError:
                if work.is_completed():
                    # The operation has ended with an error, or it has ended just after the wait's timeout.
                    work.wait()
                    return
            generation.check()
            if context.current().stop.event.is_set():
                raise Stopped
            returned_ranks = generation.returned.intersection(self._ranks)
            if returned_ranks:
                returned_at = returned_at or now
                if now - returned_at > _LAST_S:
                    raise generation.missed(
                        min(returned_ranks), f"while others wait for it in {name}"
                    )
            if left_s <= 0:
                me = generation.name_of(generation.rank)
                raise generation.late(
                    f"{me} waited in {name} for {limit_s:g} s: not all ranks have come"
                )


def _as_bytes(flat: Any) -> Any:
    """Return a view of the same memory as bytes, for operations that only move data."""
    return flat.view(np.uint8) if isinstance(flat, np.ndarray) else flat.view(torch.uint8)


def _bring_back(tensor: Any, flat: Any) -> None:
    """Copy the result into `flat`, unless the tensor has the memory of `flat`."""
    if isinstance(flat, np.ndarray) and tensor.device.type != "cpu":
        flat[...] = tensor.cpu().numpy()


def _like(data: Any, example: Any) -> Any:
    """Return bytes on a device as a flat array or tensor, like the example and with its type."""
    if isinstance(example, np.ndarray):
        return data.cpu().numpy().view(example.dtype)
    return data.view(example.dtype)
