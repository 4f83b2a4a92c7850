"""The time from launch() to the answers of all nodes, and the time of a plan: `python benchmarks/launch.py`.

    ours         lp.launch(local_mp), then one call to each of N CourierNodes
    forkserver   multiprocessing: N processes, then a message to each over a Pipe, and its answer. The
                 forkserver preloads the modules that a worker of ours has
    bare         the same without preloading
    import       the time of `python -c "import launchpad"` less that of `python -c pass`
    plan         lp.plan of N nodes, half of which call one of the others. The classes of the nodes are
                 defined in the script, which is the slow case, because such classes travel by value

Each measurement runs in a fresh interpreter, so that none profits from a server that already runs. Contenders
take turns. All of them have cached bytecode, as an ordinary program has when it runs for the second time.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial

from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns, spread, timed
from benchmarks.harness.processes import ROOT, command_apart, environment

BARE = str(ROOT / "benchmarks" / "peers" / "bare_processes.py")
CONTENDERS = ("ours", "forkserver", "bare")


class Echo:
    """A server, one in every node."""

    def __init__(self, config: dict[str, object] | None = None) -> None:
        self._config = config

    def echo(self, value: int) -> int:
        return value

    def modules(self) -> list[str]:
        """Return the names of the modules that this process has imported, in order."""
        return list(sys.modules)


def ours(
    nodes: int, launch_type: str = "local_mp", hosts: Sequence[str] | None = None
) -> tuple[float, list[str]]:
    """Return the seconds until all nodes have answered, and the modules of a worker."""
    import launchpad as lp
    from benchmarks.harness.programs import launch, replicas

    program = replicas("echo", nodes, lambda: lp.CourierNode(Echo))
    began = time.perf_counter()
    options = {} if hosts is None else {"hosts": hosts}
    running = launch(program, launch_type, **options)
    clients = [running.client("echo", i) for i in range(nodes)]
    answers = [client.futures.echo(i) for i, client in enumerate(clients)]
    assert [answer.result() for answer in answers] == list(range(nodes))
    seconds = time.perf_counter() - began
    modules = clients[0].modules()
    running.stop()
    return seconds, modules


class Interpreters:
    """Interpreters that share one cache of bytecode, a new one for each measurement."""

    def __init__(self, cache: str) -> None:
        self._env = environment(PYTHONPYCACHEPREFIX=cache)
        _, self._preload = json.loads(self.run(command_apart(ours, 1)))
        for name in CONTENDERS:  # fills the cache
            self.seconds(name, 1)

    def run(self, command: list[str]) -> str:
        """Run a command; return its output."""
        process = subprocess.run(
            command, env=self._env, capture_output=True, text=True, check=True, timeout=300
        )
        return process.stdout

    def seconds(self, contender: str, nodes: int) -> float:
        if contender == "ours":
            return float(json.loads(self.run(command_apart(ours, nodes)))[0])
        preload = self._preload if contender == "forkserver" else []
        return float(self.run([sys.executable, BARE, str(nodes), *preload]))

    def import_ms(self, rounds: int) -> float:
        """Return the median time of an interpreter that imports launchpad, less that of an idle one."""
        commands = {code: [sys.executable, "-c", code] for code in ("import launchpad", "pass")}
        ways = {code: timed(partial(self.run, command)) for code, command in commands.items()}
        times = in_turns(ways, rounds, warm_up=1)
        launchpad_ms, alone_ms = (1e3 * statistics.median(seconds) for seconds in times.values())
        difference = launchpad_ms - alone_ms
        print(
            f"import launchpad: {launchpad_ms:.1f} ms, python alone {alone_ms:.1f} ms: {difference:.1f} ms"
        )
        return difference


class Caller:
    """A node that calls an Echo."""

    def __init__(self, echo: Echo, config: dict[str, object]) -> None:
        self._echo = echo
        self._config = config

    def run(self) -> None:
        self._echo.echo(1)


def seconds_to_plan(nodes: int) -> float:
    """Return the seconds of one plan, without those to make the program."""
    import launchpad as lp

    config: dict[str, object] = {"layers": [64, 64], "lr": 0.1, "name": "benchmark"}
    program = lp.Program("benchmark")
    with program.group("server"):
        handles = [program.add_node(lp.CourierNode(Echo, config)) for _ in range(nodes // 2)]
    with program.group("client"):
        for handle in handles:
            program.add_node(lp.PyClassNode(Caller, handle, config))
    began = time.perf_counter()
    lp.plan(program, "local_mp")
    return time.perf_counter() - began


def main() -> None:
    quick = {"sizes": [2], "planned": [10, 100], "rounds": 1}
    sizes = [1, 8, 32, 128]
    parser = Parser(__doc__, quick, sizes=sizes, planned=[10, 100, 1000], rounds=5)
    options = parser.parse_args()
    print("seconds of a plan")
    table = Table("nodes", {"s (range)": ".3f"}, width=8)
    plans = []
    for nodes in options.planned:
        seconds = [seconds_to_plan(nodes) for _ in range(options.rounds)]
        table.row(nodes, spread(seconds))
        plans.append({"nodes": nodes, "seconds": seconds})
    with tempfile.TemporaryDirectory() as cache:
        interpreters = Interpreters(cache)
        import_ms = interpreters.import_ms(4 * options.rounds)
        print("seconds until all nodes have answered")
        heads = [f"{name} (range)" for name in CONTENDERS]
        table = Table("nodes", {**dict.fromkeys(heads, ".3f"), "ours/forkserver": ".2f"}, width=6)
        rows = []
        for nodes in options.sizes:
            ways = {name: partial(interpreters.seconds, name, nodes) for name in CONTENDERS}
            times = in_turns(ways, options.rounds)
            spreads = {name: spread(seconds) for name, seconds in times.items()}
            ratio = spreads["ours"]["median"] / spreads["forkserver"]["median"]
            table.row(nodes, *map(spreads.get, CONTENDERS), ratio)
            rows.append({"nodes": nodes, "seconds": times, "ratio": ratio})
    finish(options, {"import_ms": import_ms, "launch": rows, "plan": plans})


if __name__ == "__main__":
    main()
