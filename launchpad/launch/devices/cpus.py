"""The CPUs of this host, and how many threads of BLAS and OpenMP a worker is given on them."""

from __future__ import annotations

import math
import os

OPENMP_THREADS = "OMP_NUM_THREADS"


def number_of_cpus() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def number_of_threads(asked: float | None, num_workers: int) -> int:
    """How many threads of BLAS and OpenMP a worker is given.

    Args:
        asked: How many CPUs it asks for.
        num_workers: How many share this host's CPUs.
    """
    inherited = os.environ.get(OPENMP_THREADS, "")
    if asked is not None:
        return math.ceil(asked)
    if inherited.isdigit():  # Ray sets it, which knows how many workers share a node
        return max(1, int(inherited))
    return max(1, number_of_cpus() // num_workers)
