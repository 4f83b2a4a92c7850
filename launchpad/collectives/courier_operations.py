"""CourierOperations: collective operations over the edges of the graph.

all_reduce, by the size of the array:

    up to 8 ranks of one host, in memory that all ranks read and write
      up to SMALL bytes   each rank writes its array, and reduces the arrays of all ranks
      more bytes          chunk by chunk: each rank writes a chunk of its array, reduces its part of all
                          ranks' chunks, and copies the parts that the other ranks have reduced

    otherwise
      up to SMALL bytes   all ranks send their array to rank 0, which reduces and sends back the result
      more, 2 ranks       each rank sends its array to the other, and both reduce
      more, up to 8       direct: each rank sends every other rank that rank's part, reduces the parts that
                          it gets, and sends the result to every other rank
      more ranks          ring: 2(N-1) steps to the neighbour, so that a rank has two connections, not N-1

The ring reduces in its own order, the other algorithms in the order of ranks. All algorithms give the same
bits on all ranks. For more than SMALL bytes, each algorithm moves 2(N-1)/N of the array per rank, the
smallest possible amount.

Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (2009); Thakur, Rabenseifner and Gropp,
Optimization of collective communication operations in MPICH (2005).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from launchpad.collectives.host_memory import HostMemory
from launchpad.collectives.operations import Operations
from launchpad.collectives.port import RankEdges

SMALL = 1 << 20
AT_ROOT = 4 << 20
"""The most bytes of one array, and of all arrays together at rank 0, that are not split into parts.

See benchmarks/collectives.py.
"""

ROW = 1 << 20
"""Bytes of each rank's chunk in shared memory. It is at least SMALL, and a multiple of the page size."""

TINY = 56 << 10
"""Arrays up to this size, in bytes, are copied into the message. Sending them out of band would be slower."""

MANY = 8
"""The largest number of ranks for which every rank exchanges data with every other rank."""

_UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


class CourierOperations(Operations):
    """The operations of one rank, over the edges of the graph.

    Args:
        edges: The rank's messages.
        timeout_s: How long an operation may wait.
    """

    def __init__(self, edges: RankEdges, timeout_s: float) -> None:
        self._edges = edges
        self._timeout_s = timeout_s
        self.rank = edges.rank
        self.size = edges.size
        self._memory: HostMemory | None = None
        # True once an operation that can use the shared memory has tried to open it.
        self._has_opened = False

    def all_reduce(self, flat: Any, op: str, out: Any) -> None:
        self._begin(f"all_reduce({op!r}) of {self._values}")
        if self.size == 1:
            out[...] = flat
            return
        if self.size <= MANY:
            if not self._has_opened:
                self._memory = self._edges.open_memory(ROW)
                self._has_opened = True
            if self._memory is not None:
                reduce = self._reduce_in if flat.nbytes <= SMALL else self._reduce_parts_in
                reduce(self._memory, flat, op, out)
                return
        if flat.nbytes <= SMALL and flat.nbytes * (self.size - 1) <= AT_ROOT:
            self._reduce_at_root(flat, op, out)
            return
        bounds = even_bounds(flat.size, self.size)
        if self.size == 2:
            self._edges.send(1 - self.rank, 0, flat)
            other = self._edges.receive(1 - self.rank, 0)
            # Both ranks reduce rank 0's array with rank 1's, in this order, so that they get the same bits.
            if self.rank == 0:
                _UFUNCS[op](flat, other, out=out)
            else:
                _UFUNCS[op](other, flat, out=out)
        elif self.size <= MANY:
            own_part = out[bounds[self.rank] : bounds[self.rank + 1]]
            self._reduce_direct(flat, op, bounds, own_part)
            for rank, part in enumerate(self._edges.swap_with_all([own_part] * self.size, 1)):
                if rank != self.rank:
                    out[bounds[rank] : bounds[rank + 1]] = part
            self._edges.finish()
        else:
            self._reduce_ring(flat, op, bounds, out)
            self._gather_ring(bounds, out)

    def reduce_scatter(self, flat: Any, op: str, bounds: Sequence[int]) -> Any:
        self._begin(f"reduce_scatter({op!r}) of {self._values}")
        if self.size == 1:
            return flat.copy()
        if self.size <= MANY:
            mine = np.empty(bounds[self.rank + 1] - bounds[self.rank], flat.dtype)
            self._reduce_direct(flat, op, bounds, mine)
            self._edges.finish()
            return mine
        out = np.empty_like(flat)
        self._reduce_ring(flat, op, bounds, out)
        return out[bounds[self.rank] : bounds[self.rank + 1]].copy()

    def all_gather(self, flat: Any) -> list[Any]:
        self._begin(f"all_gather of {self._values}")
        return self._swap([flat] * self.size)

    def broadcast(self, flat: Any, root: int) -> None:
        self._begin(f"broadcast from rank {root} of {self._values}")
        array = self._from_root(flat, root)
        if self.rank != root:
            flat[...] = array

    def all_to_all(self, parts: Sequence[Any]) -> list[Any]:
        self._begin(f"all_to_all of {self._values}")
        return self._swap(parts)

    def barrier(self, name: str, timeout_s: float) -> None:
        self._begin(f"barrier {name!r}", timeout_s)
        self._edges.meet(None, lambda parts: None)

    def broadcast_bytes(self, data: bytes, root: int) -> bytes:
        self._begin(f"broadcast_object from rank {root}")
        root_data: bytes = self._from_root(data, root)
        return root_data

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        self._begin("all_gather_object")
        gathered: list[bytes] = self._edges.meet(data, lambda parts: parts)
        return gathered

    def gather_bytes(self, data: bytes, root: int) -> list[bytes] | None:
        self._begin(f"gather_object at rank {root}")
        if self.rank != root:
            self._edges.send(root, 0, data)
            return None
        return [data if rank == root else self._edges.receive(rank, 0) for rank in range(self.size)]

    def part(self, name: str, ranks: tuple[int, ...]) -> CourierOperations:
        return CourierOperations(self._edges.part(name, ranks), self._timeout_s)

    def close(self) -> None:
        self._edges.close()

    def _begin(self, operation: str, timeout_s: float | None = None) -> None:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        self._edges.begin(f"{operation} (call {self._n_calls})", limit_s)

    def _swap(self, parts: Sequence[Any]) -> list[Any]:
        arrays = self._edges.swap_with_all(parts, 0)
        self._edges.finish()
        return arrays

    def _reduce_at_root(self, flat: Any, op: str, out: Any) -> None:
        ufunc = _UFUNCS[op]
        is_tiny = flat.nbytes <= TINY

        def reduce(parts: list[Any]) -> Any:
            arrays = [np.frombuffer(part, flat.dtype) for part in parts] if is_tiny else parts
            total = arrays[0]
            if len(arrays) > 1:
                total = ufunc(arrays[0], arrays[1])
            for array in arrays[2:]:
                ufunc(total, array, out=total)
            return total.tobytes() if is_tiny else total

        total = self._edges.meet(flat.tobytes() if is_tiny else flat, reduce)
        out[...] = np.frombuffer(total, flat.dtype) if is_tiny else total

    def _reduce_in(self, memory: HostMemory, flat: Any, op: str, out: Any) -> None:
        """Reduce the whole array on each rank, in the order of ranks."""
        rows = memory.rows(flat.dtype, flat.size)
        rows[self.rank][...] = flat
        self._edges.meet_in(memory, [flat.nbytes] * self.size)
        total = rows[0]
        for row in rows[1:]:
            total = _UFUNCS[op](total, row, out=out)

    def _reduce_parts_in(self, memory: HostMemory, flat: Any, op: str, out: Any) -> None:
        """Reduce an array chunk by chunk.

        Each rank reduces its part of a chunk, in the order of ranks, into the row of rank 0. All ranks copy
        this row. Between two calls of `meet_in`, each rank reduces its part of one chunk, writes the next
        one, and copies the result of the previous one.
        """
        chunks = even_bounds(flat.size, -(-flat.nbytes // ROW))
        n_copied = 0
        total = out[:0]
        n_reduced = 0
        # The last chunk is empty. Its turn only copies the result of the chunk before it.
        for begin, end in itertools.pairwise([*chunks, flat.size]):
            rows = memory.rows(flat.dtype, end - begin)
            rows[self.rank][...] = flat[begin:end]
            parts = [
                slice(*part) for part in itertools.pairwise(even_bounds(end - begin, self.size))
            ]
            n_read = [part.stop - part.start + n_reduced for part in parts]
            self._edges.meet_in(memory, [n * flat.itemsize for n in n_read])
            out[n_copied:begin] = total
            own_part = parts[self.rank]
            for row in rows[1:]:
                _UFUNCS[op](rows[0][own_part], row[own_part], out=rows[0][own_part])
            n_copied = begin
            total = rows[0]
            n_reduced = own_part.stop - own_part.start

    def _from_root(self, data: Any, root: int) -> Any:
        """Return the root's data. The ranks send it down a binomial tree that begins at the root."""
        # In the tree, ranks are numbered from the root, which is 0.
        own = (self.rank - root) % self.size
        bit = 1
        while bit < self.size and not own & bit:
            bit <<= 1
        if own:
            data = self._edges.receive((own - bit + root) % self.size, 0)
        bit >>= 1
        while bit:
            if own + bit < self.size:
                self._edges.send((own + bit + root) % self.size, 0, data)
            bit >>= 1
        return data

    def _reduce_direct(self, flat: Any, op: str, bounds: Sequence[int], target: Any) -> None:
        """Reduce this rank's part into `target`, in the order of ranks."""
        parts = [flat[bounds[rank] : bounds[rank + 1]] for rank in range(self.size)]
        arrays = self._edges.swap_with_all(parts, 0)
        reduce = _UFUNCS[op]
        # `scratch` holds intermediate results. It is a received array to which nothing else refers.
        total = arrays[0]
        scratch = arrays[0 if self.rank else 1]
        for rank in range(1, self.size):
            total = reduce(total, arrays[rank], out=target if rank == self.size - 1 else scratch)

    def _reduce_ring(self, flat: Any, op: str, bounds: Sequence[int], out: Any) -> None:
        """Reduce this rank's part into `out`. The other parts of `out` are not set."""
        size = self.size
        rank = self.rank
        index = (rank - 1) % size
        part = flat[bounds[index] : bounds[index + 1]]
        for step in range(size - 1):
            self._edges.send((rank + 1) % size, step, part)
            index = (index - 1) % size
            received = self._edges.receive((rank - 1) % size, step)
            own = flat[bounds[index] : bounds[index + 1]]
            part = _UFUNCS[op](received, own, out=received)
        out[bounds[rank] : bounds[rank + 1]] = part

    def _gather_ring(self, bounds: Sequence[int], out: Any) -> None:
        size = self.size
        rank = self.rank
        for step in range(size - 1):
            index = (rank - step) % size
            self._edges.send((rank + 1) % size, size + step, out[bounds[index] : bounds[index + 1]])
            index = (index - 1) % size
            received = self._edges.receive((rank - 1) % size, size + step)
            out[bounds[index] : bounds[index + 1]] = received


def even_bounds(n: int, parts: int) -> list[int]:
    """Return the bounds that split n elements into nearly equal parts, as np.array_split does.

    The first parts are the larger ones. The last bound is n.
    """
    size, larger = divmod(n, parts)
    return [part * size + min(part, larger) for part in range(parts + 1)]
