"""The rate of a queue, and a check that no item is lost or repeated while its workers are killed.

    python benchmarks/queues.py [--items N] [--kills K] [--rounds R] [--seed S] [--quick]

rate       4 producers and 4 consumers, all processes, send items of 100 bytes through one queue. put_from,
           put_many, put and a `multiprocessing.Queue` take turns.
killed     The same, while producers and consumers are killed (SIGKILL) K times at random moments and started
           again. A producer notes its items as soon as `put_many` has returned, a consumer notes each item
           before it asks for the next. It is a failure if an acknowledged item was never handled, if an item
           was handled twice and is not in `reports()`, or if more than maxsize items waited.

The script exits with 1 after a failure.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import statistics
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns
from benchmarks.harness.programs import FOREVER, launch, run

WORKERS = 4
PADDING = b"x" * 92  # 100 bytes with the item's number
NUMBER = "<Q"
NUMBER_BYTES = 8
MAXSIZE = 10_000
DEADLINE_S = 300.0
WAYS = ("put_from", "put_many", "put")


def items(first: int, n: int) -> Iterator[bytes]:
    for number in range(first, first + n):
        yield struct.pack(NUMBER, number) + PADDING


def program_of(
    producer: tuple[Any, ...], consumer: tuple[Any, ...], restart: lp.RestartPolicy | None = None
) -> lp.Program:
    """Return a program with a queue. A producer and a consumer are a function, then its other arguments."""
    program = lp.Program("queues")
    queue = program.add_node(lp.QueueNode[bytes](MAXSIZE, producers=WORKERS), label="queue")
    for label, (function, *args) in {"producer": producer, "consumer": consumer}.items():
        with program.group(label, restart=restart):
            for _ in range(WORKERS):
                program.add_node(lp.PyNode(function, queue, *args))
    return program


# --- rate ----------------------------------------------------------------------------------------


def produce(queue: lp.Queue[bytes], way: str, n: int) -> None:
    lp.barrier("started", timeout_s=60)
    with queue.producer():
        if way == "put":
            for item in items(0, n):
                queue.put(item)
        elif way == "put_many":
            for first in range(0, n, 100):
                queue.put_many(items(first, min(100, n - first)))
        else:
            queue.put_from(items(0, n))


def consume(queue: lp.Queue[bytes]) -> tuple[int, float, float]:
    """Return the number of items, and the times of the first and the last."""
    n = 0
    began = 0.0
    for _ in queue:
        began = began or time.monotonic()
        n += 1
    return n, began, time.monotonic()


def rate_of(way: str, n: int) -> float:
    """Return items per second, from the first to the last."""
    program = program_of((produce, way, n // WORKERS), (consume,))
    return rate_in(run(program)["consumer"], n)


def rate_in(results: Any, n: int) -> float:
    """Return items per second, computed from the results of all consumers."""
    assert sum(n_items for n_items, _, _ in results) == n // WORKERS * WORKERS
    begin = min(first for n_items, first, _ in results if n_items)
    end = max(last for n_items, _, last in results if n_items)
    return n / float(end - begin)


def produce_by_multiprocessing(queue: Any, n: int) -> None:
    for item in items(0, n):
        queue.put(item)
    queue.put(None)


def consume_by_multiprocessing(queue: Any, results: Any) -> None:
    n = 0
    began = 0.0
    while queue.get() is not None:
        began = began or time.monotonic()
        n += 1
    results.put((n, began, time.monotonic()))


def rate_of_multiprocessing(n: int) -> float:
    forking = multiprocessing.get_context("fork")
    queue = forking.Queue(MAXSIZE)
    results = forking.Queue()
    processes = []
    for _ in range(WORKERS):
        mains = ((produce_by_multiprocessing, n // WORKERS), (consume_by_multiprocessing, results))
        processes += [forking.Process(target=main, args=(queue, arg)) for main, arg in mains]
    for process in processes:
        process.start()
    counts = [results.get() for _ in range(WORKERS)]
    for process in processes:
        process.join()
    return rate_in(counts, n)


def show_rates(n: int, rounds: int) -> dict[str, list[float]]:
    ways = {way: partial(rate_of, way, n // 10 if way == "put" else n) for way in WAYS}
    peer = "multiprocessing.Queue"
    rates = in_turns({**ways, peer: partial(rate_of_multiprocessing, n // 4)}, rounds)
    base = statistics.median(rates[peer])
    table = Table(
        "rate", {"items/s": ",.0f", "times": ".1f", f"best of {rounds}": ",.0f"}, width=24
    )
    for way, values in rates.items():
        middle = statistics.median(values)
        table.row(way, middle, middle / base, max(values))
    return rates


# --- killed --------------------------------------------------------------------------------------


def produce_and_note(queue: lp.Queue[bytes], folder: str, n: int, seed: int) -> None:
    """Put items until all attempts of this worker together have `n` acknowledged items."""
    me = lp.current()
    mine = Path(folder).glob(f"put-{me.replica_index}-*")
    n_left = n - sum(path.stat().st_size for path in mine) // NUMBER_BYTES
    notes = os.open(f"{folder}/put-{me.replica_index}-{me.attempt}", os.O_WRONLY | os.O_CREAT)
    chance = random.Random(f"{seed} {me.name} {me.attempt}")
    # Each attempt has numbers of its own, because it cannot know which items the last call of the
    # attempt before has put: a number that came twice would look like a repeated item.
    numbers = itertools.count((me.replica_index << 48) + (me.attempt << 32))
    with queue.producer():
        while n_left > 0:
            batch = [next(numbers) for _ in range(min(n_left, chance.choice((1, 20, 100, 500))))]
            queue.put_many(struct.pack(NUMBER, number) + PADDING for number in batch)
            os.write(notes, struct.pack(f"<{len(batch)}Q", *batch))
            n_left -= len(batch)


def consume_and_note(queue: lp.Queue[bytes], folder: str) -> None:
    me = lp.current()
    notes = os.open(f"{folder}/got-{me.replica_index}-{me.attempt}", os.O_WRONLY | os.O_CREAT)
    for item in queue:
        os.write(notes, item[:NUMBER_BYTES])


def numbers_in(folder: str, pattern: str) -> Counter[int]:
    return Counter(
        number
        for path in Path(folder).glob(pattern)
        for (number,) in struct.iter_unpack(NUMBER, path.read_bytes())
    )


def kill_meanwhile(n: int, kills: int, seed: int) -> bool:
    """Print the fate of the items; return True if none was lost or repeated unnoticed."""
    with tempfile.TemporaryDirectory() as folder:
        producer = (produce_and_note, folder, n // WORKERS, seed)
        program = program_of(producer, (consume_and_note, folder), FOREVER)
        program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")
        began = time.monotonic()
        # Spread the kills over the time that the items take when nothing is killed.
        every_s = max(0.05, 2 * WORKERS * n / 250_000 / kills)
        with launch(program) as running:
            killing = lp.testing.KillWorkers(
                running, ["producer", "consumer"], seed=seed, every_s=every_s, at_most=kills
            )
            with killing:
                running.wait(DEADLINE_S, labels=["producer", "consumer"])
            took_s = time.monotonic() - began
            handle: lp.Queue[bytes] = running.client("queue")
            stats = handle.stats()
            reports = handle.reports()
        acknowledged = numbers_in(folder, "put-*")
        handled = numbers_in(folder, "got-*")
    reported = {struct.unpack_from(NUMBER, item)[0] for report in reports for item in report.items}
    by_label = Counter(kill.worker.partition("-")[0] for kill in killing.done)
    lost = [number for number in acknowledged if not handled[number]]
    repeated = [number for number, times in handled.items() if times > 1]
    unnoticed = [number for number in repeated if number not in reported]
    print(
        f"killed     {len(killing.done)} times ({by_label['producer']} producers,"
        f" {by_label['consumer']} consumers) in {took_s:.1f} s: {len(acknowledged):,} items acknowledged,"
        f" {len(lost)} never handled, {len(repeated)} handled twice, {len(unnoticed)} of these unnoticed;"
        f" {stats.redelivered:,} delivered again; at most {stats.most_waiting:,} of {MAXSIZE:,} waited"
    )
    is_all = len(acknowledged) >= n // WORKERS * WORKERS and stats.put == stats.handled
    if len(killing.done) < kills:
        print(f"           (the items were through before {kills} kills)")
    return is_all and not lost and not unnoticed and stats.most_waiting <= MAXSIZE


def main() -> None:
    """Print the figures; exit with 1 after a failure."""
    quick = {"items": 20_000, "kills": 4, "rounds": 1}
    options = Parser(__doc__, quick, items=1_000_000, kills=100, rounds=3, seed=1).parse_args()
    rates = show_rates(options.items, options.rounds)
    faults = []
    if not kill_meanwhile(options.items, options.kills, options.seed):
        faults.append("items were lost, repeated unnoticed, or too many waited")
    finish(options, {"queues": {"items_per_s": rates}}, faults)


if __name__ == "__main__":
    main()
