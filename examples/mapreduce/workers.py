"""Mappers, reducers and their coordinator.

Mappers and reducers may die at any moment (--chaos). Whatever they do may be done twice: mapping a chunk
again makes the same pairs, and keeping them again overwrites a file with the same contents. So their methods
are idempotent. If a worker dies during a call, courier repeats the call when the worker's next attempt runs.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

import launchpad as lp

Map = Callable[[Any], Iterable[tuple[str, Any]]]
Reduce = Callable[[str, list[Any]], Any]

# Inputs per chunk. There are many more chunks than mappers, so that no mapper waits long for the slowest.
CHUNK = 20


def reduce_pairs(reduce_function: Reduce, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return one value for each key."""
    values: defaultdict[str, list[Any]] = defaultdict(list)
    for key, value in pairs:
        values[key].append(value)
    return {key: reduce_function(key, of_key) for key, of_key in values.items()}


def partition(values: Mapping[str, Any], parts: int) -> list[dict[str, Any]]:
    """Cut `values` into one piece per reducer; a key goes to the same one in every mapper.

    Python's own hash() would not do: it differs from process to process.
    """
    pieces: list[dict[str, Any]] = [{} for _ in range(parts)]
    for key, value in values.items():
        pieces[zlib.crc32(key.encode()) % parts][key] = value
    return pieces


class Reducer:
    """A reducer. It keeps the values of its keys in a file for each chunk; the files outlive the worker."""

    def __init__(self, reduce_function: Reduce) -> None:
        self._reduce_function = reduce_function
        self._folder = lp.current().state_dir

    @lp.idempotent
    def keep(self, chunk: int, values: Mapping[str, Any]) -> None:
        # Write to a file of this thread's, then rename it: a worker that dies leaves no file half written.
        unfinished = self._folder / f"unfinished-{threading.get_ident()}"
        unfinished.write_bytes(pickle.dumps(values))
        os.replace(unfinished, self._folder / f"{chunk}.pickle")

    @lp.idempotent
    def results(self) -> dict[str, Any]:
        chunks = [pickle.loads(path.read_bytes()) for path in self._folder.glob("*.pickle")]
        return reduce_pairs(self._reduce_function, (pair for own in chunks for pair in own.items()))


class Mapper:
    """A mapper. It makes pairs from inputs, and pushes them to the reducers."""

    def __init__(
        self,
        reducers: Sequence[lp.CourierClient[Reducer]],
        map_function: Map,
        reduce_function: Reduce,
    ) -> None:
        self._reducers = reducers
        self._map_function = map_function
        self._reduce_function = reduce_function

    @lp.idempotent
    def map(self, chunk: int, inputs: Sequence[Any]) -> None:
        """Return once the reducers have all values of the chunk."""
        pairs = (pair for each in inputs for pair in self._map_function(each))
        # Reduce the values of this chunk here, so that there is less to send.
        values = reduce_pairs(self._reduce_function, pairs)
        parts = lp.parts(partition(values, len(self._reducers)))
        lp.scatter(self._reducers).keep(chunk, parts)


class Coordinator:
    """The coordinator. It hands out the inputs in chunks, and collects the results."""

    def __init__(
        self,
        inputs: Sequence[Any],
        mappers: Sequence[lp.CourierClient[Mapper]],
        reducers: Sequence[lp.CourierClient[Reducer]],
    ) -> None:
        self._n_inputs = len(inputs)
        self._mappers = mappers
        self._reducers = reducers
        self._chunks: SimpleQueue[tuple[int, Sequence[Any]]] = SimpleQueue()
        for chunk, start in enumerate(range(0, len(inputs), CHUNK)):
            self._chunks.put((chunk, inputs[start : start + CHUNK]))
        self._lock = threading.Lock()
        self._n_mapped = 0
        self._started = time.perf_counter()

    def run(self) -> list[dict[str, Any]]:
        """Return the results of each reducer."""
        with ThreadPoolExecutor(len(self._mappers)) as pool:
            list(pool.map(self._keep_busy, self._mappers))  # raises what a mapper raised
        results: list[dict[str, Any]] = lp.broadcast(self._reducers).results()
        return results

    def _keep_busy(self, mapper: lp.CourierClient[Mapper]) -> None:
        """Give one mapper the next chunk as soon as it has mapped the last."""
        while True:
            try:
                chunk, inputs = self._chunks.get_nowait()
            except Empty:
                return
            mapper.map(chunk, inputs)
            self._show(len(inputs))

    def _show(self, n_inputs: int) -> None:
        """Print a line for every tenth of the inputs."""
        with self._lock:
            tenths = 10 * self._n_mapped // self._n_inputs
            self._n_mapped += n_inputs
            if 10 * self._n_mapped // self._n_inputs > tenths:
                share = self._n_mapped / self._n_inputs
                seconds = time.perf_counter() - self._started
                print(f"{share:>4.0%} of {self._n_inputs:,} inputs, {seconds:.1f} s")
