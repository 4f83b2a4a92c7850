"""What a process uses of its host, as it sees it itself; so it is the same on every backend.

The kernel is asked, not psutil: each worker would import that for three numbers, and a hundred workers on two
cores would answer the first request after seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from launchpad.courier.light_dataclass import dataclass
from launchpad.telemetry import gpu_usage

_TICKS_PER_S, _PAGE_BYTES = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessUsage:
    """What a worker's process uses. Processes that it has started are not in it.

    Example:
        for worker in running.metrics().workers:
            if usage := worker.process:
                print(f"{worker.worker} {usage.memory_bytes >> 20} MiB, {usage.cpu_percent:.0f}% of a CPU")

    Attributes:
        cpu_s: The CPU time of all its threads.
        period_s: How long that took: since the process began, or since an earlier look.
        memory_bytes: What it has in memory (RSS). Pages that it shares, as with other forks, count in each.
        threads: How many it has.
        is_shared: Whether the worker is a thread of the launching script: all this is that process's.
        gpu_memory_bytes: What is used of the memory of the worker's GPUs, by whatever uses them; None where
            it has none, or NVIDIA's library (`pip install launchpad-graph[gpu]`) does not tell.
        gpu_percent: How busy they were in the last second or less, on average.
    """

    cpu_s: float
    period_s: float
    memory_bytes: int
    threads: int
    is_shared: bool
    gpu_memory_bytes: int | None = None
    gpu_percent: float | None = None

    @property
    def cpu_percent(self) -> float:
        """100 is one CPU, all the time."""
        return 100 * self.cpu_s / self.period_s if self.period_s else 0.0

    def since(self, earlier: ProcessUsage) -> ProcessUsage:
        """What it has used since an earlier look at the same process; what it has is that of now."""
        return ProcessUsage(
            self.cpu_s - earlier.cpu_s,
            self.period_s - earlier.period_s,
            self.memory_bytes,
            self.threads,
            self.is_shared,
            self.gpu_memory_bytes,
            self.gpu_percent,
        )


def of_this_process(gpus: Sequence[str], *, is_shared: bool) -> ProcessUsage | None:
    """What this process uses now, in which a worker runs that was given these GPUs.

    None: there is no descriptor left to ask with.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            _, _, numbers = file.read().rpartition(b")")  # behind the name, which may be anything
    except OSError:
        return None
    fields = numbers.split()  # from the third on: see proc(5)
    gpu_memory_bytes, gpu_percent = gpu_usage.of(gpus) if gpus else (None, None)
    return ProcessUsage(
        cpu_s=time.process_time(),
        period_s=time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS_PER_S,
        memory_bytes=int(fields[21]) * _PAGE_BYTES,
        threads=int(fields[17]),
        is_shared=is_shared,
        gpu_memory_bytes=gpu_memory_bytes,
        gpu_percent=gpu_percent,
    )
