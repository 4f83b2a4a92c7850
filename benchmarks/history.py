"""Does a call run at most once? A history of many calls, while the server is killed and messages get lost.

    python benchmarks/history.py [--calls N] [--kills K] [--seed S] [--json FILE] [--quick]

A server in a process of its own writes down every call that it runs, before it answers. It is killed
(SIGKILL) K times at random moments and started again at the same address. Meanwhile four threads make N
calls, each with a number of its own, half of them as futures, over connections that lose requests and
responses (testing.Faults). Then what the callers were told is compared with what was written down:

    acknowledged and not run      must be 0
    run twice                     must be 0
    NotSent, and run all the same must be 0

A second history has `with_options(idempotent=True)`: there every call must end with its result, and a
call may have run more than once.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from launchpad import courier
from launchpad.courier.faults import Faults

NUMBER = struct.Struct("<Q")
THREADS = 4
SERVER = """
import os, struct, sys
sys.path.insert(0, {root!r})
from launchpad import courier
log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def run(number):
    os.write(log, struct.pack("<Q", number))
    return number

server = courier.Server("noted", address={address!r})
server.bind("run", run)
server.start()
server.join()
"""


class Noted:
    """The server, its log, and who kills it."""

    def __init__(self, directory: str) -> None:
        self.address = f"unix:{directory}/s"
        self._log = f"{directory}/log"
        root = str(Path(__file__).resolve().parent.parent)
        self._source = SERVER.format(root=root, log=self._log, address=self.address)
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

    def read_log(self) -> collections.Counter[int]:
        data = Path(self._log).read_bytes()
        return collections.Counter(number for (number,) in NUMBER.iter_unpack(data))

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", self._source])


@contextlib.contextmanager
def noted() -> Iterator[Noted]:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        server = Noted(directory)
        try:
            yield server
        finally:
            server.close()


def call_one_by_one(client: courier.Client[Any], numbers: range, told: dict[int, str]) -> None:
    for number in numbers:
        told[number] = outcome(lambda n=number: client.run(n))


def call_with_futures(client: courier.Client[Any], numbers: range, told: dict[int, str]) -> None:
    for start in range(0, len(numbers), 100):
        futures = {number: client.futures.run(number) for number in numbers[start : start + 100]}
        for number, future in futures.items():
            told[number] = outcome(future.result)


def outcome(ask: Callable[[], Any]) -> str:
    try:
        ask()
        return "ok"
    except courier.CourierError as error:
        return type(error).__name__


def make_history(calls: int, kills: int, seed: int, idempotent: bool) -> dict[str, Any]:
    """Makes the calls, kills meanwhile, compares."""
    told: dict[int, str] = {}
    began = time.perf_counter()
    with noted() as server, Faults(seed=seed, drop_request=0.002, drop_response=0.002) as faults:
        with courier.Client[Any](server.address) as client:
            client = client.with_options(idempotent=idempotent)
            share = calls // THREADS
            threads = [
                threading.Thread(
                    target=call_with_futures if i % 2 else call_one_by_one,
                    args=(client, range(i * share, (i + 1) * share), told),
                )
                for i in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            kill_meanwhile(server, threads, told, share * THREADS, kills, random.Random(seed))
            courier.close(client)
        ran = server.read_log()
        return judge(told, ran) | {
            "calls": share * THREADS,
            "kills": server.kills,
            "faults": faults.counts,
            "seconds": round(time.perf_counter() - began, 1),
        }


def kill_meanwhile(
    server: Noted,
    threads: list[threading.Thread],
    told: dict[int, str],
    calls: int,
    kills: int,
    rng: random.Random,
) -> None:
    """Spreads the kills over the calls, each at a random moment within its share."""
    for i in range(kills):
        due = (i + rng.random()) * calls / kills
        while len(told) < due and any(thread.is_alive() for thread in threads):
            time.sleep(rng.random() * 0.002)
        server.kill()
    for thread in threads:
        thread.join()


def judge(told: dict[int, str], ran: collections.Counter[int]) -> dict[str, Any]:
    return {
        "told": dict(collections.Counter(told.values())),
        "acknowledged and not run": sum(how == "ok" and not ran[n] for n, how in told.items()),
        "run twice": sum(times > 1 for times in ran.values()),
        "not sent, and run": sum(how == "NotSent" and ran[n] > 0 for n, how in told.items()),
        "not completed": sum(how != "ok" for how in told.values()),
    }


def show(name: str, history: dict[str, Any], zeros: list[str]) -> bool:
    print(f"\n{name}: {history['calls']:,} calls, {history['kills']} kills, {history['seconds']} s")
    print(f"  faults: {history['faults']}")
    print(f"  callers were told: {history['told']}")
    for zero in zeros:
        print(f"  {zero}: {history[zero]}")
    return not any(history[zero] for zero in zeros)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the histories to this file")
    parser.add_argument("--quick", action="store_true", help="4,000 calls and 4 kills")
    options = parser.parse_args()
    if options.quick:
        options.calls, options.kills = 4_000, 4
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a server that compiles all anew starts late
    once = make_history(options.calls, options.kills, options.seed, idempotent=False)
    again = make_history(options.calls, options.kills, options.seed + 1, idempotent=True)
    is_well = show(
        "at most once", once, ["acknowledged and not run", "run twice", "not sent, and run"]
    )
    is_well &= show("idempotent", again, ["acknowledged and not run", "not completed"])
    if options.json:
        options.json.write_text(json.dumps({"once": once, "idempotent": again}, indent=2) + "\n")
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
