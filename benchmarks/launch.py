"""How long from launch() to the first answer of all nodes: `python benchmarks/launch.py`.

    ours         lp.launch(local_mp), then one call to each of N CourierNodes
    forkserver   multiprocessing: N processes, then one message to each over a Pipe, and its answer; its
                 server preloads the modules that a worker of ours has
    bare         the same, and preloads nothing
    spawn        the same, each process a new interpreter
    import       how much longer `python -c "import launchpad"` takes than `python -c pass`

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

    def modules(self) -> list[str]:
        """What this process has imported, in that order."""
        return list(sys.modules)


def ours(nodes: int, *, names_modules: bool = False) -> str:
    """The seconds; or what a worker has imported."""
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
    modules = clients[0].modules() if names_modules else []
    running.stop()
    return " ".join(modules) if names_modules else str(seconds)


BARE = str(ROOT / "benchmarks" / "_bare_processes.py")


class Interpreters:
    """Runs each measurement in an interpreter of its own; all of them share one cache of bytecode."""

    def __init__(self, cache: str) -> None:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self._env = env | {"PYTHONPYCACHEPREFIX": cache, "PYTHONPATH": str(ROOT)}
        preload = self.run(__file__, "--modules").split()
        self.contenders = {
            "ours": ([__file__, "--one"], []),
            "forkserver": ([BARE, "forkserver"], preload),
            "bare": ([BARE, "forkserver"], []),
            "spawn": ([BARE, "spawn"], []),
        }
        for name in self.contenders:  # fills the cache
            self.seconds(name, 1)

    def run(self, *command: str) -> str:
        """What it prints."""
        command = (sys.executable, *command)
        done = subprocess.run(
            command, env=self._env, capture_output=True, text=True, check=True, timeout=300
        )
        return done.stdout

    def seconds(self, contender: str, nodes: int) -> float:
        before, after = self.contenders[contender]
        return float(self.run(*before, str(nodes), *after))

    def import_ms(self, rounds: int) -> float:
        """The difference of the medians of what takes turns."""
        times: dict[str, list[float]] = {"import launchpad": [], "pass": []}
        for code in (*times, *(list(times) * rounds)):
            began = time.perf_counter()
            self.run("-c", code)
            times[code].append(1e3 * (time.perf_counter() - began))
        with_it, without = (statistics.median(each[1:]) for each in times.values())
        print(
            f"import launchpad: {with_it:.1f} ms, python alone {without:.1f} ms: {with_it - without:.1f} ms"
        )
        return with_it - without


def compare(interpreters: Interpreters, sizes: list[int], rounds: int) -> list[dict[str, object]]:
    """All contenders at all sizes, in turns."""
    rows: list[dict[str, object]] = []
    for nodes in sizes:
        times: dict[str, list[float]] = {name: [] for name in interpreters.contenders}
        for _ in range(rounds):
            for name, seconds in times.items():
                if name != "spawn" or nodes <= 32:  # a new interpreter for each takes a while
                    seconds.append(interpreters.seconds(name, nodes))
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
    parser.add_argument("--modules", action="store_true", help="print what a worker has imported")
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.rounds = "2", 1
    if options.one or options.modules:
        print(ours(options.one or 1, names_modules=options.modules))
        return
    with tempfile.TemporaryDirectory() as cache:
        interpreters = Interpreters(cache)
        import_ms = interpreters.import_ms(4 * options.rounds)
        print("seconds until all nodes have answered, median (min–max)")
        names = "".join(f"{name:>22}" for name in interpreters.contenders)
        print(f"{'nodes':>6}{names}{'ours/forkserver':>16}")
        sizes = [int(n) for n in options.sizes.split(",")]
        rows = compare(interpreters, sizes, options.rounds)
    if options.json:
        from benchmarks.harness import command_line as report

        report.write_report(options.json, {"import_ms": import_ms, "launch": rows})


if __name__ == "__main__":
    main()
