"""The CPUs of this host, and the number of BLAS and OpenMP threads that a worker is given on them."""

from __future__ import annotations

import math
import os

from launchpad.launch.devices import cgroup

OPENMP_THREADS = "OMP_NUM_THREADS"


def number_of_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota() -> float | None:
    """Return the CPU time that this process's cgroup may use, as a number of CPUs; None without a limit."""
    quotas = []
    for path in cgroup.paths({"": "cpu.max"}, with_parents=True):
        allowed, _, period = cgroup.text_of(path).partition(" ")
        if allowed.isdigit():
            quotas.append(int(allowed) / int(period))
    for path in cgroup.paths({"cpu": "cpu.cfs_quota_us"}, with_parents=True):
        allowed = cgroup.text_of(path).strip()
        period = cgroup.text_of(f"{os.path.dirname(path)}/cpu.cfs_period_us").strip()
        if allowed.isdigit() and period.isdigit():
            quotas.append(int(allowed) / int(period))
    return min(quotas, default=None)


def number_of_threads(n_requested: float | None, num_workers: int) -> int:
    """Return how many threads of BLAS and OpenMP a worker is given.

    Args:
        n_requested: How many CPUs the worker asks for.
        num_workers: How many workers share this host's CPUs.
    """
    inherited = os.environ.get(OPENMP_THREADS, "")
    if n_requested is not None:
        return math.ceil(n_requested)
    if inherited.isdigit():  # Ray sets it, and knows how many workers share a node
        return max(1, int(inherited))
    limit = quota()
    n_cpus = number_of_cpus() if limit is None else min(number_of_cpus(), math.ceil(limit))
    return max(1, n_cpus // num_workers)
