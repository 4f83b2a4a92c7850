"""CPU time, memory, threads and GPUs that a process uses. Each process measures itself, on every backend.

The numbers come from the kernel and not from psutil. If each worker imported psutil for three numbers, a
hundred workers on two cores would take seconds to answer the first request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from launchpad.courier.light_dataclass import dataclass
from launchpad.telemetry import gpu_usage

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessUsage:
    """The resource usage of a worker's process. Processes that it started don't count.

    Example:
        for worker in running.metrics().workers:
            if usage := worker.process:
                print(f"{worker.worker} {usage.memory_bytes >> 20} MiB, {usage.cpu_percent:.0f}% of a CPU")

    Attributes:
        cpu_s: CPU seconds of all its threads.
        period_s: The time in which it used them: since the process began, or since an earlier snapshot.
        memory_bytes: Its resident memory (RSS). Pages that several processes share, such as those of a fork,
            count in each of them.
        threads: Number of its threads.
        is_shared: True if the worker is a thread of the launching script. The numbers are then those of the
            script's process.
        gpu_memory_bytes: Used memory of the worker's GPUs, by any process. None if the worker has no GPUs, or
            NVIDIA's library (`pip install launchpad-graph[gpu]`) doesn't report it.
        gpu_percent: The average load of its GPUs, over the last second or less.
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
        """CPU time as a percentage of the period. 100 means one CPU, all the time."""
        return 100 * self.cpu_s / self.period_s if self.period_s else 0.0

    def since(self, earlier: ProcessUsage) -> ProcessUsage:
        """Return the CPU time used since an earlier snapshot of the same process.

        Memory, threads and GPUs keep their current values.
        """
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
    """Measure the usage of this process, which runs a worker that was given these GPUs.

    Returns:
        None if /proc can't be read, for example because the process is out of descriptors.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            # The numbers follow the process's name, in parentheses, which may contain anything.
            _, _, numbers = file.read().rpartition(b")")
    except OSError:
        return None
    # `fields[0]` is the third field of proc(5).
    fields = numbers.split()
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
