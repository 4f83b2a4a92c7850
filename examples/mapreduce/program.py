"""MapReduce: mappers count words, and push each word's count to the reducer that owns the word.

    coordinator ──chunks of files──▶ mapper × m ──counts of some words──▶ reducer × r
         └────────────────────────what have you counted?─────────────────────▲

The coordinator assigns the files, and collects the totals at the end. In between, the counts go from mappers
to reducers without passing through it.

Mappers and reducers may die at any moment (--chaos). Whatever they do may be done twice: counting a chunk
again gives the same counts, and keeping them again overwrites a file with the same contents. So their methods
are idempotent. If a worker dies during a call, courier repeats the call when the worker's next attempt runs.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue

import launchpad as lp
from examples.mapreduce.text import count_all

# Files per chunk. There are many more chunks than mappers, so that no mapper waits long for the slowest.
CHUNK = 20


class Reducer:
    """A reducer. It keeps the counts of its words in a file for each chunk; the files outlive the worker."""

    def __init__(self) -> None:
        self._unclaimed = lp.current().state_dir

    @lp.idempotent
    def keep(self, chunk: int, counts: Mapping[str, int]) -> None:
        # Write to a file of this thread's, then rename it: a worker that dies leaves no file half written.
        unfinished = self._unclaimed / f"unfinished-{threading.get_ident()}"
        unfinished.write_text(json.dumps(counts))
        os.replace(unfinished, self._unclaimed / f"{chunk}.json")

    @lp.idempotent
    def total(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for path in self._unclaimed.glob("*.json"):
            total.update(json.loads(path.read_text()))
        return total


class Mapper:
    """A mapper. It counts the words of files and pushes the counts to the reducers."""

    def __init__(self, reducers: Sequence[lp.CourierClient[Reducer]]) -> None:
        self._reducers = reducers

    @lp.idempotent
    def count(self, chunk: int, texts: Sequence[Path]) -> int:
        """Count the words of `texts`. Return how many there are, once the reducers have the counts."""
        counts = count_all(texts)
        parts = partition(counts, len(self._reducers))
        futures = [
            lp.submit(reducer.keep, chunk, part)
            for reducer, part in zip(self._reducers, parts, strict=True)
        ]
        for future in futures:
            future.result()
        return counts.total()


class Coordinator:
    """The coordinator. It hands out the files in chunks, collects the counts, and checks them."""

    def __init__(
        self,
        texts: Sequence[Path],
        mappers: Sequence[lp.CourierClient[Mapper]],
        reducers: Sequence[lp.CourierClient[Reducer]],
    ) -> None:
        self._texts = texts
        self._mappers = mappers
        self._reducers = reducers
        self._chunks: SimpleQueue[tuple[int, Sequence[Path]]] = SimpleQueue()
        for chunk, start in enumerate(range(0, len(texts), CHUNK)):
            self._chunks.put((chunk, texts[start : start + CHUNK]))
        self._progress = Progress(len(texts))

    def run(self) -> None:
        counts = self._map()
        print("the most frequent words:")
        for word, count in counts.most_common(10):
            print(f"{count:>12,}  {word}")
        check(counts, count_all(self._texts))

    def _map(self) -> Counter[str]:
        with ThreadPoolExecutor(len(self._mappers)) as pool:
            list(pool.map(self._keep_busy, self._mappers))  # raises what a mapper raised
        return self._collect()

    def _keep_busy(self, mapper: lp.CourierClient[Mapper]) -> None:
        """Give one mapper the next chunk as soon as it has counted the last."""
        while True:
            try:
                chunk, texts = self._chunks.get_nowait()
            except Empty:
                return
            words = mapper.count(chunk, texts)
            self._progress.add(len(texts), words)

    def _collect(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for future in [lp.submit(reducer.total) for reducer in self._reducers]:
            total.update(future.result())
        return total


class Progress:
    """The progress of the mappers. It prints a line for every tenth of the files."""

    def __init__(self, files: int) -> None:
        self._files = files
        self._counted = 0
        self._words = 0
        self._lock = threading.Lock()
        self._started = time.perf_counter()

    def add(self, files: int, words: int) -> None:
        with self._lock:
            tenths = 10 * self._counted // self._files
            self._counted += files
            self._words += words
            if 10 * self._counted // self._files > tenths:
                self._print()

    def _print(self) -> None:
        seconds = time.perf_counter() - self._started
        print(
            f"{self._counted / self._files:>4.0%} of {self._files:,} files,"
            f" {self._words:,} words, {seconds:.1f} s"
        )


def partition(counts: Mapping[str, int], parts: int) -> list[dict[str, int]]:
    """Cut `counts` into one piece per reducer; a word goes to the same one in every mapper.

    Python's own hash() would not do: it differs from process to process.
    """
    pieces: list[dict[str, int]] = [{} for _ in range(parts)]
    for word, count in counts.items():
        pieces[zlib.crc32(word.encode()) % parts][word] = count
    return pieces


def check(counts: Counter[str], expected: Counter[str]) -> None:
    """Raise unless the program counted what a plain `Counter` counts in one process."""
    wrong = sorted(
        word for word in counts.keys() | expected.keys() if counts[word] != expected[word]
    )
    if wrong:
        first = wrong[0]
        raise ArithmeticError(
            f"the counts of {len(wrong):,} words are wrong: {first!r} occurs"
            f" {expected[first]:,} times, not {counts[first]:,}"
        )
    print(f"{expected.total():,} words, {len(expected):,} different: the counts agree")


def make_program(texts: Sequence[Path], mappers: int = 4, reducers: int = 2) -> lp.Program:
    """Return the graph: coordinator → mappers → reducers, and coordinator → reducers."""
    program = lp.Program("mapreduce")
    with program.group("reducer", restart=lp.RestartPolicy()):
        reducer_handles = [program.add_node(lp.CourierNode(Reducer)) for _ in range(reducers)]
    with program.group("mapper", restart=lp.RestartPolicy()):
        mapper_handles = [
            program.add_node(lp.CourierNode(Mapper, reducer_handles)) for _ in range(mappers)
        ]
    coordinator = lp.PyClassNode(Coordinator, texts, mapper_handles, reducer_handles)
    program.add_node(coordinator, label="coordinator")
    return program
