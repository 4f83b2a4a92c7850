"""Measures what a large array costs that many nodes are given: `python benchmarks/large_constants.py`.

Eight workers are given the same array of 200 MB, and read all of it. Then each writes into half of it.
Printed as multiples of the array's size:

    script      its peak beyond what it had before there was an array: with that, which is one
    in a worker its own memory (USS) beyond that of a worker without an array: when all have read, and when
                all have written
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import psutil

import launchpad as lp


def own_bytes() -> int:
    return int(psutil.Process().memory_full_info().uss)


def idle() -> int:
    """Own memory of a worker that has imported the same, and has no large array."""
    assert np.ones(1).sum() == 1.0
    return own_bytes()


def read_and_write(array: Any) -> list[int]:
    """Own memory when all have read, and when all have written."""
    seen = []
    for step in ("read", "written"):
        if step == "written":
            array[: len(array) // 2] = lp.current().replica_index
        assert float(array[-1]) == 1.0
        float(array.sum())
        lp.barrier(step)
        seen.append(own_bytes())
        lp.barrier(f"{step}, and measured")
    return seen


def measure(size: int, workers: int, launch_type: str) -> dict[str, float]:
    """Runs the program; multiples of the array's size."""
    idle_program = lp.Program("large_constants")
    idle_program.add_node(lp.PyNode(idle), label="idle")
    (without,) = lp.run(idle_program, launch_type)["idle"]
    script_before = psutil.Process().memory_info().rss
    array = np.ones(size // 8)
    program = lp.Program("large_constants")
    with program.group("worker"):
        for _ in range(workers):
            program.add_node(lp.PyNode(read_and_write, array))
    results = lp.run(program, launch_type)["worker"]
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    read, written = zip(*results, strict=True)
    return {
        "script": (peak - script_before) / size,
        "worker_read": (max(read) - without) / size,
        "worker_written": (max(written) - without) / size,
    }


def main() -> None:
    """Prints the figures; `--json FILE` writes them too."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--launch_type", default="test_mp", help="test_mp (default), test_ray, …")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    found = measure(arguments.mb * 10**6 // 8 * 8, arguments.workers, arguments.launch_type)

    size = f"{arguments.mb} MB"
    print(f"{arguments.workers} workers are given one array of {size}; in multiples of that")
    print(f"  script, at its peak             {found['script']:5.2f}")
    print(f"  each worker, when it has read   {found['worker_read']:5.2f}")
    print(f"  when it has written half        {found['worker_written']:5.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
