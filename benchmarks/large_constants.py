"""The memory cost of a large array that is an argument of many nodes: `python benchmarks/large_constants.py`.

Eight workers get the same array of 200 MB, and read all of it. Then each writes into half of it. The script
prints the cost as multiples of the array's size:

    script      its peak memory beyond its memory before it made the array, so at least one
    in a worker its own memory (USS) beyond that of a worker without an array: when all workers have read, and
                when all have written
"""

from __future__ import annotations

import resource
import sys
from typing import Any

import numpy as np
import psutil

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.programs import replicas


def own_bytes() -> int:
    return int(psutil.Process().memory_full_info().uss)


def idle() -> int:
    """Return the own memory of a worker that has the same modules and no large array."""
    assert np.ones(1).sum() == 1.0
    return own_bytes()


def read_and_write(array: Any) -> list[int]:
    """Return the own memory when all workers have read, and when all have written."""
    sizes = []
    for step in ("read", "written"):
        if step == "written":
            array[: len(array) // 2] = lp.current().replica_index
        assert float(array[-1]) == 1.0
        float(array.sum())
        lp.barrier(step)
        sizes.append(own_bytes())
        lp.barrier(f"{step}, and measured")
    return sizes


def measure(size: int, workers: int, launch_type: str) -> dict[str, float]:
    """Run the program; return multiples of the array's size."""
    (idle_bytes,) = lp.run(replicas("idle", 1, lambda: lp.PyNode(idle)), launch_type)["idle"]
    script_before = psutil.Process().memory_info().rss
    array = np.ones(size // 8)
    program = replicas("worker", workers, lambda: lp.PyNode(read_and_write, array))
    results = lp.run(program, launch_type)["worker"]
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    after_reading, after_writing = zip(*results, strict=True)
    return {
        "script": (peak - script_before) / size,
        "worker_read": (max(after_reading) - idle_bytes) / size,
        "worker_written": (max(after_writing) - idle_bytes) / size,
    }


def main() -> None:
    options = Parser(__doc__, mb=200, workers=8, launch_type="test_mp").parse_args()
    multiples = measure(options.mb * 10**6 // 8 * 8, options.workers, options.launch_type)
    print(f"{options.workers} workers are given one array of {options.mb} MB; in multiples of that")
    print(f"  script, at its peak             {multiples['script']:5.2f}")
    print(f"  each worker, when it has read   {multiples['worker_read']:5.2f}")
    print(f"  when it has written half        {multiples['worker_written']:5.2f}")
    finish(options, multiples)


if __name__ == "__main__":
    main()
