"""What this host has, as `doctor` shows it: a line for each thing, with advice where that is little."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import launchpad
from launchpad.courier.formatting import size
from launchpad.launch.devices import inventory, out_of_memory

_FEW = 4096
"""Open files, and processes: each worker takes a handful."""
_UNTESTED = "launchpad is tested on Linux only; what differs here may fail"
_SMALL_SHM_BYTES = 256 << 20

EXTRAS = {
    "ray": "ray",
    "spark": "pyspark",
    "kubernetes": "kubernetes",
    "completion": "argcomplete",
    "tls": "cryptography",
    "gpu": "nvidia-ml-py",
    "grpc": "grpcio",
    "otel": "opentelemetry-api",
    "state": "fsspec",
    "reverb": "dm-reverb",
}
"""Extra → a package that it brings."""


@dataclass(frozen=True)
class Fact:
    """One thing of this host. `advice` is empty where there is nothing to do."""

    name: str
    found: str
    advice: str = ""


def facts() -> list[Fact]:
    """All of them; nothing is started but nvidia-smi, if it is there."""
    import psutil

    is_tested = platform.system() == "Linux"
    memory = psutil.virtual_memory()
    limit = out_of_memory.limit_bytes()
    limited = f"; this process's cgroup may use {size(limit)}" if limit else ""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpus = ", ".join(f"{device.index}: {device.name}" for device in inventory.installed())
    missing = [extra for extra, package in EXTRAS.items() if not is_installed(package)]
    there = ", ".join(extra for extra in EXTRAS if extra not in missing)
    return [
        Fact("launchpad", f"{launchpad.__version__}, {Path(launchpad.__file__).parent}"),
        Fact("python", f"{platform.python_version()}, {sys.executable}"),
        Fact("system", f"{platform.platform()}, {platform.node()}", "" if is_tested else _UNTESTED),
        Fact("CPUs", str(cpus)),
        Fact("memory", f"{size(memory.available)} free of {size(memory.total)}{limited}"),
        _shared_memory(),
        _limit("open files", resource.RLIMIT_NOFILE, "ulimit -n"),
        _limit("processes", resource.RLIMIT_NPROC, "ulimit -u"),
        Fact("GPUs", gpus or "none"),
        Fact("extras", f"{there or 'none'}; not installed: {', '.join(missing) or 'none'}"),
    ]


def is_installed(distribution: str) -> bool:
    """Whether pip, or its like, has installed it; nothing is imported."""
    try:
        return bool(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return False


def _shared_memory() -> Fact:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        return Fact("/dev/shm", "none", "large arrays go through sockets instead, which is slower")
    advice = ""
    if usage.free < _SMALL_SHM_BYTES:
        advice = (
            "large arrays go from process to process through it: docker run --shm-size=2g, or a volume of"
            " medium Memory in a pod"
        )
    return Fact("/dev/shm", f"{size(usage.free)} free of {size(usage.total)}", advice)


def _limit(name: str, which: int, command: str) -> Fact:
    limits = resource.getrlimit(which)
    soft, hard = ("unlimited" if n == resource.RLIM_INFINITY else f"{n:,}" for n in limits)
    # A launch raises what may be open at once as far as it can.
    counts = limits[1] if which == resource.RLIMIT_NOFILE else limits[0]
    advice = f"hundreds of workers need more: `{command} 65536`, or /etc/security/limits.conf"
    is_little = counts != resource.RLIM_INFINITY and counts < _FEW
    return Fact(name, f"{soft}, at most {hard} ({command})", advice if is_little else "")
