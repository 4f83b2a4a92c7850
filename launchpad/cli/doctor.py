"""The command `doctor`: facts about this host, and a check for each launch type that it can run a program.

For threads and processes, the command runs a program. For a cluster, it checks within seconds that the
package is installed and that something listens at the cluster's address. It doesn't import the package, start
anything on the cluster, or check permissions.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import launchpad
from launchpad.cli.command import CommandError, argument, command
from launchpad.courier import extras
from launchpad.courier.formatting import aligned, size
from launchpad.errors import DefinitionError, LaunchError, ProgramFailed
from launchpad.launch import registry
from launchpad.launch.devices import inventory, out_of_memory
from launchpad.launch.launch import launch
from launchpad.nodes.python import PyNode
from launchpad.program import Program

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
"""Maps each extra to a package that it installs."""

_FEW = 4096
"""Advice is shown if a limit of open files or processes is below this. Each worker takes a few of them."""

_UNTESTED = "launchpad is tested on Linux only; what differs here may fail"
_SMALL_SHM_BYTES = 256 << 20
_AS_ADVISED = "what the error above says"
_REACH_S = 1.5
_RUN_S = 20.0
_OLDEST_JAVA = 17
_RAY_PORT = 6379
_SPARK_PORT = 7077
_RAY_HERE = Path("/tmp/ray/ray_current_cluster")
"""The file with the address of this machine's Ray cluster. RAY_ADDRESS=auto refers to this cluster."""


@dataclass(frozen=True)
class HostFact:
    """A fact about this host. `advice` is empty if there is nothing to do."""

    name: str
    found: str
    advice: str = ""


@dataclass(frozen=True)
class LaunchCheck:
    """The result of a check. If `can_run` is False, `next_step` says what to do."""

    launch_type: str
    can_run: bool
    found: str
    next_step: str = ""


@command(argument("--json", action="store_true", help="for programs to read"))
def doctor(options: argparse.Namespace) -> None:
    """Look at this host: what it has, which launch types can run here, and what is missing for the others.

    It prints two tables, with the next step where something is missing. The exit code is 1 if the default
    launch type cannot run a program.
    """
    facts = host_facts()
    checks = launch_checks()
    default = registry.launch_type_name(None)
    if options.json:
        report = {
            "host": [asdict(fact) for fact in facts],
            "launch_types": [asdict(check) for check in checks],
            "default": default,
        }
        print(json.dumps(report, indent=2))
    else:
        _print_tables(facts, checks, default)
    for check in checks:
        if check.launch_type == default and not check.can_run:
            raise CommandError(
                f"launch type {default!r}, the default, cannot run here: {check.found}"
            )


def _print_tables(facts: Sequence[HostFact], checks: Sequence[LaunchCheck], default: str) -> None:
    print(*aligned([(fact.name, fact.found) for fact in facts]), "", sep="\n")
    table = [("LAUNCH TYPE", "", "HERE")]
    for check in checks:
        name = check.launch_type
        if name == default:
            name += " (default)"
        table.append((name, "ok" if check.can_run else "no", check.found))
    print(*aligned(table), sep="\n")
    advice = [(fact.name, fact.advice) for fact in facts if fact.advice]
    advice += [(check.launch_type, check.next_step) for check in checks if check.next_step]
    if advice:
        print("", *aligned([("FOR", "DO"), *advice]), sep="\n")


def host_facts() -> list[HostFact]:
    """Return all facts about this host. This starts only nvidia-smi, if it is installed."""
    import psutil

    is_tested = platform.system() == "Linux"
    memory = psutil.virtual_memory()
    limit = out_of_memory.limit_bytes()
    limit_text = f"; this process's cgroup may use {size(limit)}" if limit else ""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpus = ", ".join(f"{device.index}: {device.name}" for device in inventory.installed())
    missing = [extra for extra, package in EXTRAS.items() if not is_installed(package)]
    installed_extras = ", ".join(extra for extra in EXTRAS if extra not in missing)
    system = f"{platform.platform()}, {platform.node()}"
    return [
        HostFact("launchpad", f"{launchpad.__version__}, {Path(launchpad.__file__).parent}"),
        HostFact("python", f"{platform.python_version()}, {sys.executable}"),
        HostFact("system", system, "" if is_tested else _UNTESTED),
        HostFact("CPUs", str(cpus)),
        HostFact("memory", f"{size(memory.available)} free of {size(memory.total)}{limit_text}"),
        _shared_memory(),
        _limit("open files", resource.RLIMIT_NOFILE, "ulimit -n"),
        _limit("processes", resource.RLIMIT_NPROC, "ulimit -u"),
        HostFact("GPUs", gpus or "none"),
        HostFact(
            "extras", f"{installed_extras or 'none'}; not installed: {', '.join(missing) or 'none'}"
        ),
    ]


def is_installed(distribution: str) -> bool:
    """Return True if a distribution is installed, by pip or another installer. Don't import it."""
    try:
        return bool(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return False


def _shared_memory() -> HostFact:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        slow = "large arrays go through sockets instead, which is slower"
        return HostFact("/dev/shm", "none", slow)
    advice = ""
    if usage.free < _SMALL_SHM_BYTES:
        advice = (
            "large arrays go from process to process through it: docker run --shm-size=2g, or a volume of"
            " medium Memory in a pod"
        )
    return HostFact("/dev/shm", f"{size(usage.free)} free of {size(usage.total)}", advice)


def _limit(name: str, kind: int, shell_command: str) -> HostFact:
    limits = resource.getrlimit(kind)
    soft, hard = ("unlimited" if n == resource.RLIM_INFINITY else f"{n:,}" for n in limits)
    # A launch raises the soft limit of open files as far as it can, so the hard limit counts.
    counts = limits[1] if kind == resource.RLIMIT_NOFILE else limits[0]
    advice = f"hundreds of workers need more: `{shell_command} 65536`, or /etc/security/limits.conf"
    is_little = counts != resource.RLIM_INFINITY and counts < _FEW
    text = f"{soft}, at most {hard} ({shell_command})"
    return HostFact(name, text, advice if is_little else "")


def launch_checks() -> list[LaunchCheck]:
    """Check each launch type, including the default one."""
    looks: dict[str, Callable[[], LaunchCheck]] = {
        "local_mt": lambda: _check_by_running("local_mt", "test_mt"),
        "local_mp": lambda: _check_by_running("local_mp", "test_mp"),
        "ray": _check_ray,
        "spark": _check_spark,
        "kubernetes": _check_kubernetes,
    }
    default = registry.launch_type_name(None)
    if default not in looks:
        looks[default] = lambda: _check_by_loading(default)
    with ThreadPoolExecutor(len(looks), thread_name_prefix="launchpad-doctor") as pool:
        clusters = {name: pool.submit(look) for name, look in looks.items() if "local" not in name}
        results = {name: look() for name, look in looks.items() if "local" in name}
        results |= {name: future.result() for name, future in clusters.items()}
    return [results[name] for name in looks]


def _check_by_running(launch_type: str, quiet: str) -> LaunchCheck:
    program = Program("doctor")
    program.add_node(PyNode(int), label="worker")
    try:
        running = launch(program, quiet)
        try:
            running.wait(_RUN_S)
        finally:
            running.stop()
        shutil.rmtree(running.log_directory, ignore_errors=True)
    except (LaunchError, DefinitionError, ProgramFailed, TimeoutError, OSError) as error:
        first = str(error).split("\n")[0]
        text = f"a program of one worker fails: {first}"
        return LaunchCheck(launch_type, False, text, _AS_ADVISED)
    return LaunchCheck(launch_type, True, "a program of one worker runs")


def _check_by_loading(launch_type: str) -> LaunchCheck:
    try:
        registry.backend_of(launch_type)
    except (LaunchError, DefinitionError) as error:
        return LaunchCheck(launch_type, False, str(error), "choose another, by LP_LAUNCH_TYPE")
    return LaunchCheck(launch_type, True, "its backend can be loaded")


def _check_ray() -> LaunchCheck:
    if not is_installed("ray"):
        return _without("ray", "ray")
    ray_address = os.environ.get("RAY_ADDRESS", "")
    if not ray_address:
        text = "RAY_ADDRESS names no cluster: each launch starts a Ray on this machine"
        return LaunchCheck("ray", True, text)
    if ray_address.startswith("ray://"):
        step = "run the script on a machine of the cluster, with RAY_ADDRESS=HOST:6379"
        return LaunchCheck("ray", False, f"RAY_ADDRESS={ray_address} is for Ray's client", step)
    address = ray_address
    if ray_address == "auto":
        with contextlib.suppress(OSError):
            address = _RAY_HERE.read_text().strip()
    step = "`ray start --head`, or unset it"
    return _reached("ray", f"RAY_ADDRESS={ray_address}", address, _RAY_PORT, step)


def _check_spark() -> LaunchCheck:
    if not is_installed("pyspark"):
        return _without("spark", "pyspark")
    java_folder = os.environ.get("JAVA_HOME")
    java = os.path.join(java_folder, "bin", "java") if java_folder else "java"
    step = "install a JRE: `apt install openjdk-17-jre-headless`; or let JAVA_HOME say where it is"
    if shutil.which(java) is None:
        return LaunchCheck("spark", False, f"there is no {java!r}", step)
    try:
        process = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_REACH_S
        )
        version_text = process.stderr
    except (OSError, subprocess.TimeoutExpired):
        # Java did not answer, perhaps because the machine is busy. If Java is too old, the launch says so.
        version_text = ""
    version = re.search(r'version "(\d+)', version_text)
    if version and int(version[1]) < _OLDEST_JAVA:
        text = f"Java {version[1]}; Spark needs {_OLDEST_JAVA}"
        return LaunchCheck("spark", False, text, step)
    master = os.environ.get("SPARK_MASTER", "")
    if not master.startswith("spark://"):
        cluster = f"SPARK_MASTER={master}" if master else "SPARK_MASTER names no cluster"
        return LaunchCheck("spark", True, f"{cluster}: what a session of pyspark uses, is used")
    address = master.removeprefix("spark://").partition(",")[0]
    step = "start it, or unset it"
    return _reached("spark", f"SPARK_MASTER={master}", address, _SPARK_PORT, step)


def _check_kubernetes() -> LaunchCheck:
    if not is_installed("kubernetes"):
        return _without("kubernetes", "kubernetes")
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if host:
        port = int(os.environ.get("KUBERNETES_SERVICE_PORT", 443))
        return _reached("kubernetes", "the cluster of this pod", host, port, "look at its network")
    paths = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
    import yaml

    clusters: dict[str, str] = {}
    contexts: dict[str, str] = {}
    current = ""
    for path in paths.split(os.pathsep):
        with contextlib.suppress(OSError, yaml.YAMLError, AttributeError, KeyError, TypeError):
            config = yaml.safe_load(Path(path).read_text())
            current = current or config.get("current-context") or ""
            for cluster in config.get("clusters") or ():
                clusters.setdefault(cluster["name"], cluster["cluster"]["server"])
            for context in config.get("contexts") or ():
                contexts.setdefault(context["name"], context["context"]["cluster"])
    server = clusters.get(contexts.get(current, ""), "")
    if not server:
        step = "have `kubectl config use-context NAME` work first"
        return LaunchCheck("kubernetes", False, f"no current context in {paths}", step)
    url = urlsplit(server)
    name = f"the cluster of context {current!r}"
    port = url.port or (80 if url.scheme == "http" else 443)
    return _reached("kubernetes", name, url.hostname or "", port, "see `kubectl cluster-info`")


def _without(launch_type: str, package: str) -> LaunchCheck:
    text = f"the package {package} is not installed"
    return LaunchCheck(launch_type, False, text, extras.install_command(launch_type))


def _reached(launch_type: str, cluster: str, address: str, port: int, step: str) -> LaunchCheck:
    """Check that something listens at `HOST` or `HOST:PORT`."""
    host, colon, named_port = address.rpartition(":")
    if colon and named_port.isdigit():
        address = host.strip("[]")
        port = int(named_port)
    try:
        socket.create_connection((address, port), _REACH_S).close()
    except OSError as error:
        return LaunchCheck(launch_type, False, f"{cluster}: no answer, {error}", step)
    return LaunchCheck(launch_type, True, f"{cluster} answers at {address}:{port}")
