"""A program of very many nodes: its start, its memory, its end.

    python benchmarks/scale.py --nodes 500

A script launches N CourierNodes as local processes, calls each of them once, and then waits. Printed are

    all answer      from launch() to the N-th answer                                      ≤ 15 s
    memory          of the script and all its processes (PSS: what is shared counts once)  ≤ 5 GiB
    prompt          from Ctrl-C (SIGINT) until the script has ended                        ≤ 3 s
    left            processes and files that are there afterwards                          0
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.harness import holdings
from benchmarks.harness.command_line import Parser, finish

ANSWER_S = 15.0
MEMORY_BYTES = 5 << 30
PROMPT_S = 3.0

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
    """Launch once, and return what was seen from its start to its end."""
    mark = f"scale-{os.getpid()}"
    with tempfile.TemporaryDirectory() as directory:
        env = holdings.marked_environment(mark, directory)
        command = [sys.executable, "-c", SCRIPT, str(nodes)]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = (line.split() for line in process.stdout)  # progress is among them
            words = next((words for words in lines if words[:1] == ["answered"]), None)
            assert words is not None, "the script has failed"
            pids = holdings.marked(mark)
            memory = sum(map(holdings.proportional, pids))
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            process.communicate(timeout=120)
            prompt_s = time.monotonic() - began
        left = holdings.left_over(mark, directory)
    return {
        "nodes": nodes,
        "launch_s": float(words[1]),
        "answer_s": float(words[2]),
        "processes": len(pids),
        "pss_bytes": memory,
        "prompt_s": prompt_s,
        "exit_code": process.returncode,
        "left": left,
    }


def faults(found: dict[str, Any]) -> list[str]:
    """Return which promises do not hold."""
    broken = {
        "answers are late": found["answer_s"] > ANSWER_S,
        "too much memory": found["pss_bytes"] > MEMORY_BYTES,
        "the prompt is late": found["prompt_s"] > PROMPT_S,
        f"exit code {found['exit_code']}": found["exit_code"] != 130,
        f"left: {found['left']}": bool(found["left"]),
    }
    return [what for what, is_so in broken.items() if is_so]


def main() -> None:
    """Print the figures; exit with 1 if one is not as promised."""
    options = Parser(__doc__, {"nodes": 8}, nodes=500).parse_args()
    found = measure(options.nodes)
    print(
        f"{found['nodes']} nodes ({found['processes']} processes): launch() returned after"
        f" {found['launch_s']:.2f} s, all answered after {found['answer_s']:.2f} s,"
        f" memory {found['pss_bytes'] / 2**30:.2f} GiB (PSS),"
        f" Ctrl-C to prompt {found['prompt_s']:.2f} s, left {len(found['left'])}"
    )
    finish(options, {"scale": found}, faults(found))


if __name__ == "__main__":
    main()
