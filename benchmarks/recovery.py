"""The time that a killed server needs to come back: `python benchmarks/recovery.py`.

The server runs in a process of its own, with a restart policy without back-off. The script kills it again and
again (SIGKILL). Three clocks begin at each kill, all CLOCK_MONOTONIC of this machine:

    noticed     until the supervisor begins the next attempt
    answers     until a new client has an answer
    next call   until a waiting client has an answer: it was waiting when the server died, got OutcomeUnknown,
                and called again at once

Then the script kills the server with 1,000 calls in flight, and with 10,000, and measures the time until all
of them have ended. No call may be lost, and all must end with OutcomeUnknown. The script exits with 1 if a
promise does not hold.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

import launchpad as lp
from benchmarks.harness import bars
from benchmarks.harness.command_line import Parser
from benchmarks.harness.figures import Table, percentiles
from benchmarks.harness.programs import FOREVER, launch, replicas

DEADLINE_S = 30.0
BARS = bars.parse("""
death noticed, p99                 | recovery/noticed/p99_ms          | ≤ 5 ms
killed worker answers again, p99   | recovery/answers/p99_ms          | ≤ 150 ms
next call of a waiting client, p99 | recovery/next call/p99_ms        | ≤ 250 ms
1,000 calls in flight, worst       | recovery/in flight/1000/max_ms   | ≤ 100 ms
10,000 calls in flight, worst      | recovery/in flight/10000/max_ms  | ≤ 1000 ms
calls without an outcome           | recovery/in flight/lost          | ≤ 0
calls with another outcome         | recovery/in flight/strange       | ≤ 0
""")


class Server:
    """A server that answers with its attempt, or never answers."""

    def __init__(self) -> None:
        self._hanging = 0

    def attempt(self) -> int:
        return lp.current().attempt

    def n_hanging(self) -> int:
        return self._hanging

    async def hang(self) -> None:
        self._hanging += 1
        await asyncio.sleep(3600)


class Victim:
    """The running server, as the script sees it."""

    def __init__(self, running: lp.Running) -> None:
        self.running = running
        self.client: Any = running.client("server")
        self.client.attempt()

    def kill(self) -> float:
        """Kill the server; return the time of the kill."""
        (status,) = self.running.status()
        assert status.pid is not None
        self.attempt = status.attempt
        killed_at = time.monotonic()
        os.kill(status.pid, signal.SIGKILL)
        return killed_at

    def noticed_at(self) -> float:
        """Return the time at which the supervisor began the next attempt."""
        (status,) = self.running.status()
        assert status.attempt == self.attempt + 1
        assert status.started_at is not None
        return status.started_at


@contextmanager
def victim() -> Iterator[Victim]:
    with launch(replicas("server", 1, lambda: lp.CourierNode(Server), FOREVER)) as running:
        yield Victim(running)


def call_waiting(client: Any, answered: list[float]) -> None:
    """Make a call that is never answered. When it fails because of the kill, call again."""
    try:
        client.hang()
    except lp.courier.OutcomeUnknown:
        client.attempt()
    answered.append(time.monotonic())


def one_kill(server: Victim) -> dict[str, float]:
    """Kill once; return the three clocks, in ms."""
    next_call: list[float] = []
    waiting = threading.Thread(target=call_waiting, args=(server.client, next_call))
    waiting.start()
    prober: Any = server.running.client("server")
    while not prober.n_hanging():
        time.sleep(0.001)
    killed_at = server.kill()
    with server.running.client("server") as fresh:
        while fresh.with_options(idempotent=True).attempt() == server.attempt:
            time.sleep(0.001)  # the answer came from the old process, which was not dead yet
        answers = time.monotonic()
    waiting.join(DEADLINE_S)
    times = {"noticed": server.noticed_at(), "answers": answers, "next call": next_call[0]}
    return {name: (at - killed_at) * 1000 for name, at in times.items()}


def kill_in_flight(server: Victim, calls: int) -> dict[str, Any]:
    """Kill the server with calls in flight; return the ms until all have ended, and their outcomes."""
    futures: list[Future[None]] = [server.client.futures.hang() for _ in range(calls)]
    with server.running.client("server") as prober:
        while prober.n_hanging() < calls:
            time.sleep(0.001)
    killed_at = server.kill()
    with_outcome, without_outcome = wait(futures, DEADLINE_S)
    ms = (time.monotonic() - killed_at) * 1000
    server.client.attempt()
    errors = Counter(type(future.exception()).__name__ for future in with_outcome)
    strange = errors.total() - errors["OutcomeUnknown"]
    return {"ms": ms, "told": dict(errors), "lost": len(without_outcome), "strange": strange}


def measure(kills: int, rounds: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    with victim() as server:
        times = []
        for _ in range(kills):
            times.append(one_kill(server))
            time.sleep(chance.uniform(0, 0.02))
        figures: dict[str, Any] = {
            name: percentiles([t[name] for t in times], "_ms") for name in times[0]
        }
        trials = {
            calls: [kill_in_flight(server, calls) for _ in range(rounds)] for calls in (1000, 10000)
        }
    all_trials = [trial for trials_of_n in trials.values() for trial in trials_of_n]
    figures["in flight"] = {
        "lost": sum(trial["lost"] for trial in all_trials),
        "strange": sum(trial["strange"] for trial in all_trials),
        **{
            str(n): percentiles([trial["ms"] for trial in trials_of_n], "_ms")
            for n, trials_of_n in trials.items()
        },
    }
    return {"recovery": {"kills": kills, "rounds": rounds, **figures}}


def main() -> None:
    quick = {"kills": 5, "rounds": 1}
    options = Parser(__doc__, quick, kills=300, rounds=10, seed=0).parse_args()
    report = measure(options.kills, options.rounds, options.seed)
    recovery = report["recovery"]
    rows = {name: recovery[name] for name in ("noticed", "answers", "next call")}
    rows |= {f"{int(n):,} in flight": recovery["in flight"][n] for n in ("1000", "10000")}
    table = Table(f"{options.kills} kills, ms", dict.fromkeys(("p50", "p99", "worst"), ".1f"))
    for name, row in rows.items():
        table.row(name, *row.values())
    bars.finish(options, report, BARS)


if __name__ == "__main__":
    main()
