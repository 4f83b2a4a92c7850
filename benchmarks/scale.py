"""How a program of very many nodes starts, how much memory it takes, and how it ends.

    python benchmarks/scale.py --nodes 500

A script launches N CourierNodes as local processes, calls each of them once, and then waits. Printed are

    all answer      from launch() to the N-th answer                                      ≤ 15 s
    memory          of the script and all its processes (PSS: what is shared counts once)  ≤ 5 GiB
    prompt          from Ctrl-C (SIGINT) until the script has ended                        ≤ 3 s
    left            processes and files that are there afterwards                          0
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.orphans import MARK, files_below, marked

ROOT = Path(__file__).resolve().parent.parent
ANSWER_S, MEMORY_BYTES, PROMPT_S = 15.0, 5 << 30, 3.0

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
    """One launch, from its start to its end."""
    value = f"scale-{os.getpid()}"
    with tempfile.TemporaryDirectory() as directory:
        env = {**os.environ, MARK: value, "PYTHONPATH": str(ROOT), "TMPDIR": directory}
        env.pop("XDG_RUNTIME_DIR", None)
        command = [sys.executable, "-c", SCRIPT, str(nodes)]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = (line.split() for line in process.stdout)  # progress is among them
            words = next((words for words in lines if words[:1] == ["answered"]), None)
            assert words is not None, "the script has failed"
            pids = marked(f"{MARK}={value}")
            found = {"nodes": nodes, "launch_s": float(words[1]), "answer_s": float(words[2])}
            found |= {"processes": len(pids), "pss_bytes": sum(map(pss_bytes, pids))}
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            process.communicate(timeout=120)
            found |= {"prompt_s": time.monotonic() - began, "exit_code": process.returncode}
        left = [f"process {pid}" for pid in marked(f"{MARK}={value}")]
        left += files_below(Path(directory, f"launchpad-{os.getuid()}"))
    return found | {"left": left}


def pss_bytes(pid: int) -> int:
    """The process's proportional share of the memory it uses."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def faults(found: dict[str, Any]) -> list[str]:
    """Which promises do not hold."""
    broken = {
        "answers are late": found["answer_s"] > ANSWER_S,
        "too much memory": found["pss_bytes"] > MEMORY_BYTES,
        "the prompt is late": found["prompt_s"] > PROMPT_S,
        f"exit code {found['exit_code']}": found["exit_code"] != 130,
        f"left: {found['left']}": bool(found["left"]),
    }
    return [what for what, is_so in broken.items() if is_so]


def main() -> None:
    """Prints the figures; exits with 1 if one is not as promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    found = measure(8 if options.quick else options.nodes)
    print(
        f"{found['nodes']} nodes ({found['processes']} processes): launch() returned after"
        f" {found['launch_s']:.2f} s, all answered after {found['answer_s']:.2f} s,"
        f" memory {found['pss_bytes'] / 2**30:.2f} GiB (PSS),"
        f" Ctrl-C to prompt {found['prompt_s']:.2f} s, left {len(found['left'])}"
    )
    for fault in faults(found):
        print(f"  {fault}")
    if options.json:
        from benchmarks.harness import command_line as report

        report.write_report(options.json, {"scale": found})
    raise SystemExit(1 if faults(found) else 0)


if __name__ == "__main__":
    main()
