"""The start, the memory and the end of a program with very many nodes.

    python benchmarks/scale.py --nodes 500

A script launches N CourierNodes as local processes, calls each of them once, and waits until Ctrl-C (SIGINT)
ends it. The memory is that of the script and all its processes, in which shared memory counts once (PSS).
"""

from __future__ import annotations

import signal
import subprocess
import time
from typing import Any

from benchmarks.harness import bars, holdings
from benchmarks.harness.command_line import Parser

BARS = bars.parse("""
from launch() until all nodes have answered  | scale/answer_s    | ≤ 15 s
memory (PSS)                                 | scale/memory_gib  | ≤ 5 GiB
from Ctrl-C until the script has ended       | scale/prompt_s    | ≤ 3 s
exit code                                    | scale/exit_code   | = 130
processes and files left                     | scale/n_left      | ≤ 0
""")

SCRIPT = """
import sys, time
import launchpad as lp

class Echo:
    def echo(self, value):
        return value

nodes = int(sys.argv[1])
program = lp.Program("scale")
with program.group("echo"):
    for _ in range(nodes):
        program.add_node(lp.CourierNode(Echo))
began = time.perf_counter()
running = lp.launch(program, "local_mp")
launched = time.perf_counter()
answers = [running.client("echo", i).futures.echo(i) for i in range(nodes)]
assert [answer.result() for answer in answers] == list(range(nodes))
print("answered", launched - began, time.perf_counter() - began, flush=True)
"""


def measure(nodes: int) -> dict[str, Any]:
    """Run the script once; return its figures from start to end."""
    with holdings.MarkedScript(SCRIPT, str(nodes), stdout=subprocess.PIPE, text=True) as script:
        process = script.process
        assert process.stdout is not None
        lines = (line.split() for line in process.stdout)  # some of them show progress
        words = next((words for words in lines if words[:1] == ["answered"]), None)
        assert words is not None, "the script has failed"
        pids = script.processes()
        memory = sum(map(holdings.proportional, pids))
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        process.communicate(timeout=120)
        prompt_s = time.monotonic() - began
        leftovers = script.left_over()
    return {
        "nodes": nodes,
        "launch_s": float(words[1]),
        "answer_s": float(words[2]),
        "processes": len(pids),
        "memory_gib": memory / 2**30,
        "prompt_s": prompt_s,
        "exit_code": process.returncode,
        "left": leftovers,
        "n_left": len(leftovers),
    }


def main() -> None:
    options = Parser(__doc__, {"nodes": 8}, nodes=500).parse_args()
    figures = measure(options.nodes)
    print(f"{options.nodes} nodes, {figures['processes']} processes; left: {figures['left']}")
    bars.finish(options, {"scale": figures}, BARS)


if __name__ == "__main__":
    main()
