"""The machine, the versions and the time of a measurement."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = (
    "cloudpickle",
    "cryptography",
    "grpcio",
    "numpy",
    "opentelemetry-sdk",
    "pyzmq",
    "ray",
    "uvloop",
)


def describe() -> dict[str, Any]:
    """Return a description of the machine, the versions and the time, as data for JSON."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": round(os.getloadavg()[0], 1),  # by other processes: we have not begun yet
        "kernel": platform.release(),
        "halt_poll_ns": halt_poll_ns(),
        "python": platform.python_version(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of those peers that are installed."""
    version_by_name = {name: version_of(name) for name in PEERS}
    return {name: version for name, version in version_by_name.items() if version}


def in_words(machine: dict[str, Any]) -> str:
    """Return a description that `describe` has made, as two lines of text."""
    peers = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    is_slow_to_wake = machine.get("halt_poll_ns") == 0
    halts = "; idle cores halt at once, and wake slowly" if is_slow_to_wake else ""
    return (
        f"{machine['date']} at {machine['commit']}: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, load {machine['load']}{halts}\n"
        f"Python {machine['python']}, {peers}"
    )


def version_of(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def halt_poll_ns() -> int | None:
    """Return the ns for which an idle virtual core polls before it halts; Linux's default is 200,000."""
    try:
        return int(Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns").read_text())
    except OSError:
        return None


def commit() -> str:
    """Return the commit of the checkout, with a + if files were edited since."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
