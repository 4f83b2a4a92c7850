"""How long from launch() to the first answer of all nodes: `python benchmarks/launch.py`.

    ours         lp.launch(local_mp), then one call to each of N CourierNodes
    forkserver   multiprocessing: N processes, then one message to each over a Pipe, and its answer
    spawn        the same, each process a new interpreter

Each measurement is a fresh interpreter, so that none profits from a server that already runs; contenders
take turns. Bytecode is cached for all of them, as it is wherever a program runs for the second time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


class Echo:
    """What every node serves."""

    def echo(self, value: int) -> int:
        return value


def ours(nodes: int) -> float:
    import launchpad as lp

    program = lp.Program("benchmark")
    with program.group("echo"):
        for _ in range(nodes):
            program.add_node(lp.CourierNode(Echo))
    began = time.perf_counter()
    running = lp.launch(program, "local_mp", terminal="output_to_files")
    clients = [running.client("echo", i) for i in range(nodes)]
    answers = [client.futures.echo(i) for i, client in enumerate(clients)]
    assert [answer.result() for answer in answers] == list(range(nodes))
    seconds = time.perf_counter() - began
    running.stop()
    return seconds


CONTENDERS = {
    "ours": [__file__, "--one"],
    "forkserver": [str(ROOT / "benchmarks" / "_bare_processes.py"), "forkserver"],
    "spawn": [str(ROOT / "benchmarks" / "_bare_processes.py"), "spawn"],
}


def measure(contender: str, nodes: int, cache: str) -> float:
    """One contender in an interpreter of its own."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPYCACHEPREFIX": cache, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *CONTENDERS[contender], str(nodes)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=300)
    return float(done.stdout)


def compare(sizes: list[int], rounds: int) -> list[dict[str, object]]:
    """All contenders at all sizes, in turns."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as cache:
        for name in CONTENDERS:
            measure(name, 1, cache)  # fills the cache
        for nodes in sizes:
            times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
            for _ in range(rounds):
                for name, seconds in times.items():
                    if name != "spawn" or nodes <= 32:  # a new interpreter for each takes a while
                        seconds.append(measure(name, nodes, cache))
            rows.append(_row(nodes, times))
            print(_line(nodes, times), flush=True)
    return rows


def _row(nodes: int, times: dict[str, list[float]]) -> dict[str, object]:
    medians = {name: statistics.median(t) for name, t in times.items() if t}
    return {"nodes": nodes, "seconds": times, "ratio": medians["ours"] / medians["forkserver"]}


def _line(nodes: int, times: dict[str, list[float]]) -> str:
    cells = []
    for seconds in times.values():
        spread = (
            f"{statistics.median(seconds):.3f} ({min(seconds):.3f}–{max(seconds):.3f})"
            if seconds
            else "-"
        )
        cells.append(spread.rjust(22))
    ratio = statistics.median(times["ours"]) / statistics.median(times["forkserver"])
    return f"{nodes:>6}" + "".join(cells) + f"{ratio:>14.2f}"


def main() -> None:
    """Prints the table; `--json FILE` writes it too."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", default="1,8,32,128")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, help="measure only ours, once, with so many nodes")
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.rounds = "2", 1
    if options.one:
        print(ours(options.one))
        return
    print("seconds until all nodes have answered, median (min–max)")
    print(
        f"{'nodes':>6}" + "".join(f"{name:>22}" for name in CONTENDERS) + f"{'ours/forkserver':>16}"
    )
    rows = compare([int(n) for n in options.sizes.split(",")], options.rounds)
    if options.json:
        from benchmarks.calls import report

        report.write(options.json, {"launch": rows})


if __name__ == "__main__":
    main()
