"""A check that a call runs at most once, while the server is killed and messages get lost.

    python benchmarks/history.py [--calls N] [--kills K] [--seed S] [--json FILE] [--quick]

A server in a process of its own notes every call that it runs, before it answers. The script kills it
(SIGKILL) K times at random moments and starts it again at the same address. At the same time four threads
make N calls, each with a number of its own, half of them as futures, over connections that lose requests and
responses (testing.Faults). At the end the script compares the answers of the callers with the calls that ran
(testing.History):

    told ok, and never run        must be 0
    run more than once            must be 0
    NotSent, and run all the same must be 0
    never answered                must be 0

A second history has `with_options(idempotent=True)`: there every call must end with its result, and a
call may have run more than once.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any

from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.processes import command_apart, environment
from launchpad import courier
from launchpad.testing import Faults, Findings, History
from launchpad.testing.call_history import OK

THREADS = 4
ZEROS = ["told ok, and never run", "NotSent, and run all the same", "never answered"]


def serve(address: str, path: str) -> None:
    """Serve in a process of its own, and note every call before the server answers it."""
    history = History(path)

    def run(number: int) -> int:
        history.ran(number)
        return number

    server = courier.Server("noted", address=address)
    server.bind("run", run)
    server.start()
    server.join()


class NotedServer:
    """A server that can be killed, and the history of its calls."""

    def __init__(self, directory: str) -> None:
        self.address = f"unix:{directory}/s"
        self.history = History(f"{directory}/history")
        self._command = command_apart(serve, self.address, str(self.history.path))
        self._process = self._start()
        self.kills = 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.kills += 1
        self._process = self._start()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, env=environment())


@contextlib.contextmanager
def noted_server() -> Iterator[NotedServer]:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        server = NotedServer(directory)
        try:
            yield server
        finally:
            server.close()


def call_one_by_one(client: courier.Client[Any], numbers: range, history: History) -> None:
    for number in numbers:
        with contextlib.suppress(courier.CourierError), history.call(number):
            client.run(number)


def call_with_futures(client: courier.Client[Any], numbers: range, history: History) -> None:
    for start in range(0, len(numbers), 100):
        futures = []
        for number in numbers[start : start + 100]:
            futures.append(client.futures.run(number))
            history.follow(number, futures[-1])
        wait(futures)


def make_history(calls: int, kills: int, seed: int, idempotent: bool) -> dict[str, Any]:
    """Make the calls, kill the server at the same time, and return the findings."""
    began = time.perf_counter()
    dropping = Faults(seed=seed, drop_request=0.002, drop_response=0.002)
    with noted_server() as server, dropping as faults:
        with courier.Client[Any](server.address) as client:
            client = client.with_options(idempotent=idempotent)
            share = calls // THREADS
            threads = [
                threading.Thread(
                    target=call_with_futures if i % 2 else call_one_by_one,
                    args=(client, range(i * share, (i + 1) * share), server.history),
                )
                for i in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            kill_meanwhile(server, threads, client, share * THREADS, kills, random.Random(seed))
            courier.close(client)
        return judge(server.history.read()) | {
            "calls": share * THREADS,
            "kills": server.kills,
            "faults": faults.counts,
            "seconds": round(time.perf_counter() - began, 1),
        }


def kill_meanwhile(
    server: NotedServer,
    threads: list[threading.Thread],
    client: courier.Client[Any],
    calls: int,
    kills: int,
    rng: random.Random,
) -> None:
    """Kill the server: divide the calls into as many shares as there are kills, one kill in each."""
    for i in range(kills):
        calls_at_kill = (i + rng.random()) * calls / kills
        while n_begun(client) < calls_at_kill and any(thread.is_alive() for thread in threads):
            time.sleep(rng.random() * 0.002)
        server.kill()
    for thread in threads:
        thread.join()


def n_begun(client: courier.Client[Any]) -> int:
    return sum(method.calls for method in courier.stats(client).methods.values())


def judge(findings: Findings) -> dict[str, Any]:
    return {
        "told": dict(findings.acknowledged),
        "told ok, and never run": len(findings.lost),
        "run more than once": len(findings.repeated),
        "NotSent, and run all the same": len(findings.run_all_the_same),
        "never answered": len(findings.unanswered),
        "not completed": findings.acknowledged.total() - findings.acknowledged[OK],
    }


def show(name: str, history: dict[str, Any], zeros: list[str]) -> list[str]:
    """Print the figures of a history; return the names of those that should be zero and are not."""
    print(f"\n{name}: {history['calls']:,} calls, {history['kills']} kills, {history['seconds']} s")
    print(f"  faults: {history['faults']}")
    print(f"  callers were told: {history['told']}")
    for zero in zeros:
        print(f"  {zero}: {history[zero]}")
    return [f"{name}: {zero}" for zero in zeros if history[zero]]


def main() -> None:
    quick = {"calls": 4_000, "kills": 4}
    options = Parser(__doc__, quick, calls=200_000, kills=200, seed=1).parse_args()
    once = make_history(options.calls, options.kills, options.seed, idempotent=False)
    again = make_history(options.calls, options.kills, options.seed + 1, idempotent=True)
    faults = show("at most once", once, [*ZEROS, "run more than once"])
    faults += show("idempotent", again, [*ZEROS, "not completed"])
    finish(options, {"once": once, "idempotent": again}, faults)


if __name__ == "__main__":
    main()
