"""Whether each launch type can run a program from here, and what is missing where it cannot.

Threads and processes run one. Of a cluster it is looked whether its package is there and whether something
listens at its address, within seconds: nothing is imported, nothing started, and no right is checked.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from launchpad.cli.host_facts import is_installed
from launchpad.courier import extras
from launchpad.errors import DefinitionError, LaunchError, ProgramFailed
from launchpad.launch import registry
from launchpad.launch.launch import launch
from launchpad.nodes.python import PyNode
from launchpad.program import Program

_AS_ADVISED = "what the error above says"
_REACH_S = 1.5
_RUN_S = 20.0
_OLDEST_JAVA = 17
_RAY_PORT, _SPARK_PORT = 6379, 7077
_RAY_HERE = Path("/tmp/ray/ray_current_cluster")
"""Where Ray writes the address of the cluster on this machine: what RAY_ADDRESS=auto means."""


@dataclass(frozen=True)
class LaunchCheck:
    """Whether a launch type can run a program from here; if not, `next_step` says what to do."""

    launch_type: str
    can_run: bool
    found: str
    next_step: str = ""


def checks() -> list[LaunchCheck]:
    """One for each launch type, the default one always among them."""
    looks: dict[str, Callable[[], LaunchCheck]] = {
        "local_mt": lambda: _run("local_mt", "test_mt"),
        "local_mp": lambda: _run("local_mp", "test_mp"),
        "ray": _ray,
        "spark": _spark,
        "kubernetes": _kubernetes,
    }
    default = registry.launch_type_name(None)
    if default not in looks:
        looks[default] = lambda: _loaded(default)
    with ThreadPoolExecutor(len(looks), thread_name_prefix="launchpad-doctor") as pool:
        clusters = {name: pool.submit(look) for name, look in looks.items() if "local" not in name}
        found = {name: look() for name, look in looks.items() if "local" in name}
        found |= {name: future.result() for name, future in clusters.items()}
    return [found[name] for name in looks]


def _run(launch_type: str, quiet: str) -> LaunchCheck:
    """Runs a program of one worker."""
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
        return LaunchCheck(
            launch_type, False, f"a program of one worker fails: {first}", _AS_ADVISED
        )
    return LaunchCheck(launch_type, True, "a program of one worker runs")


def _loaded(launch_type: str) -> LaunchCheck:
    try:
        registry.backend_of(launch_type)
    except (LaunchError, DefinitionError) as error:
        return LaunchCheck(launch_type, False, str(error), "choose another, by LP_LAUNCH_TYPE")
    return LaunchCheck(launch_type, True, "its backend can be loaded")


def _ray() -> LaunchCheck:
    if not is_installed("ray"):
        return _without("ray", "ray")
    named = os.environ.get("RAY_ADDRESS", "")
    if not named:
        return LaunchCheck(
            "ray", True, "RAY_ADDRESS names no cluster: each launch starts a Ray on this machine"
        )
    if named.startswith("ray://"):
        step = "run the script on a machine of the cluster, with RAY_ADDRESS=HOST:6379"
        return LaunchCheck("ray", False, f"RAY_ADDRESS={named} is for Ray's client", step)
    address = named
    if named == "auto":
        with contextlib.suppress(OSError):
            address = _RAY_HERE.read_text().strip()
    return _reached(
        "ray", f"RAY_ADDRESS={named}", address, _RAY_PORT, "`ray start --head`, or unset it"
    )


def _spark() -> LaunchCheck:
    if not is_installed("pyspark"):
        return _without("spark", "pyspark")
    installed = os.environ.get("JAVA_HOME")
    java = os.path.join(installed, "bin", "java") if installed else "java"
    step = "install a JRE: `apt install openjdk-17-jre-headless`; or let JAVA_HOME say where it is"
    if shutil.which(java) is None:
        return LaunchCheck("spark", False, f"there is no {java!r}", step)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_REACH_S)
        printed = done.stderr
    except (OSError, subprocess.TimeoutExpired):
        printed = ""  # an old or a busy machine: the launch will tell
    if (found := re.search(r'version "(\d+)', printed)) and int(found[1]) < _OLDEST_JAVA:
        return LaunchCheck("spark", False, f"Java {found[1]}; Spark needs {_OLDEST_JAVA}", step)
    master = os.environ.get("SPARK_MASTER", "")
    if not master.startswith("spark://"):
        what = f"SPARK_MASTER={master}" if master else "SPARK_MASTER names no cluster"
        return LaunchCheck("spark", True, f"{what}: what a session of pyspark uses, is used")
    address = master.removeprefix("spark://").partition(",")[0]
    return _reached(
        "spark", f"SPARK_MASTER={master}", address, _SPARK_PORT, "start it, or unset it"
    )


def _kubernetes() -> LaunchCheck:
    if not is_installed("kubernetes"):
        return _without("kubernetes", "kubernetes")
    if host := os.environ.get("KUBERNETES_SERVICE_HOST"):
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
            for each in config.get("clusters") or ():
                clusters.setdefault(each["name"], each["cluster"]["server"])
            for each in config.get("contexts") or ():
                contexts.setdefault(each["name"], each["context"]["cluster"])
    server = clusters.get(contexts.get(current, ""), "")
    if not server:
        step = "have `kubectl config use-context NAME` work first"
        return LaunchCheck("kubernetes", False, f"no current context in {paths}", step)
    url = urlsplit(server)
    what = f"the cluster of context {current!r}"
    port = url.port or (80 if url.scheme == "http" else 443)
    return _reached("kubernetes", what, url.hostname or "", port, "see `kubectl cluster-info`")


def _without(launch_type: str, package: str) -> LaunchCheck:
    return LaunchCheck(
        launch_type,
        False,
        f"the package {package} is not installed",
        extras.install_command(launch_type),
    )


def _reached(launch_type: str, what: str, address: str, port: int, step: str) -> LaunchCheck:
    """Whether something listens at `HOST` or `HOST:PORT`."""
    host, colon, given = address.rpartition(":")
    if colon and given.isdigit():
        address, port = host.strip("[]"), int(given)
    try:
        socket.create_connection((address, port), _REACH_S).close()
    except OSError as error:
        return LaunchCheck(launch_type, False, f"{what}: no answer, {error}", step)
    return LaunchCheck(launch_type, True, f"{what} answers at {address}:{port}")
