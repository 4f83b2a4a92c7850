"""What holds for every test: nothing may outlive it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml

import launchpad as lp
from launchpad.launch.backends.kubernetes.settings import FILE
from tests.faults import backends, index
from tests.kubernetes import namespaces, on_this_host
from tests.ray import clusters
from tests.run_recorder import (  # noqa: F401 - pytest finds its hooks here
    pytest_configure,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
)
from tests.spark import sessions

# The same cases in each run: who changes something meets only what that change broke. For other cases:
# make test PYTEST_ARGS=--hypothesis-profile=default
hypothesis.settings.register_profile(
    "same cases",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("same cases")

SPARK_DEADLINE_S = 300
"""On a busy machine Java takes a minute to start, and the first tests wait for that."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives each test its lane, such as `ray` or `hosts`; those of faults can be run alone."""
    for item in items:
        if index.numbers(item.name):
            item.add_marker(pytest.mark.fault)
        if backends.is_on_ray(item) or item.path.parent.name == "ray":
            item.add_marker(pytest.mark.ray)
        if backends.is_on_spark(item) or item.path.parent.name == "spark":
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(SPARK_DEADLINE_S))
        if item.path.parent.name == "frameworks":
            item.add_marker(pytest.mark.frameworks)
        if item.path.parent.name == "hosts":
            item.add_marker(pytest.mark.hosts)
        if backends.is_on_kubernetes(item):
            item.add_marker(pytest.mark.kubernetes)
            assert item.nodeid.split("/")[1] in backends.ON_KUBERNETES, (
                f".ci/on_a_cluster skips {item.path}"
            )


@pytest.fixture(autouse=True, scope="session")
def no_directory_is_shared_with_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs, logs and claims of GPUs are this test process's alone, and pytest or we remove them.

    Test processes run side by side, and on the developer's machine. What a test starts inherits the
    variables.
    """
    own = f"launchpad-{os.getuid()}"
    folders = {
        "LAUNCHPAD_RUNTIME_DIR": Path(tempfile.mkdtemp(prefix="lp-", dir="/tmp"), own),  # short
        "LAUNCHPAD_LOGGING_DIR": tmp_path_factory.mktemp("logs") / f"{own}-logs",
        "LAUNCHPAD_CLAIMS_DIR": tmp_path_factory.mktemp("claims") / f"{own}-claims",
        "LAUNCHPAD_TOKENS_DIR": tmp_path_factory.mktemp("tokens") / f"{own}-tokens",
    }
    with pytest.MonkeyPatch.context() as patch:
        for variable, folder in folders.items():
            patch.setenv(variable, str(folder))
        yield
    # Processes that clean up after a test may remove them, too.
    shutil.rmtree(folders["LAUNCHPAD_RUNTIME_DIR"].parent, ignore_errors=True)


@pytest.fixture(autouse=True, scope="session")
def signals_are_noticed() -> None:
    """A shell has what it runs in the background ignore Ctrl-C, and whatever that starts; nohup SIGHUP."""
    for number, default in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[clusters.Cluster]:
    """A Ray cluster of one node on this machine, which all tests share that need no other."""
    pytest.importorskip("ray")
    with clusters.running({"num_cpus": 4, "include_dashboard": True}) as running:  # keeps all books
        yield running


@pytest.fixture(scope="session")
def spark_context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark with two executors on this machine, which all tests share that launch on one themselves."""
    sessions.skip_without_spark()
    with sessions.running(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="session")
def cluster_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A file for pods that run what the tests run: $LAUNCHPAD_KUBERNETES, or for a cluster on this host."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("there is no cluster: KUBECONFIG is not set")
    if FILE in os.environ:
        yield os.environ[FILE]
        return
    with namespaces.own_namespace() as namespace:
        settings = on_this_host.settings(str(tmp_path_factory.getbasetemp()), namespace)
        file = tmp_path_factory.mktemp("cluster") / "settings.yaml"
        file.write_text(yaml.safe_dump(settings))
        file.with_name(_LEAN).write_text(yaml.safe_dump({**settings, "send_code": False}))
        yield str(file)


_LEAN = "lean.yaml"


@pytest.fixture
def pods_run_this(
    cluster_settings: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a cluster. What a test itself launches its pods have already: all tests are mounted there."""
    is_lean = FILE not in os.environ and backends.is_launched_by_the_test(request.node)
    file = Path(cluster_settings).with_name(_LEAN) if is_lean else cluster_settings
    monkeypatch.setenv(FILE, str(file))


@pytest.fixture(autouse=True)
def nothing_outlives_its_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Processes, threads and descriptors that a test leaves behind are its failure."""
    if request.node.get_closest_marker("leaks_by_nature"):
        yield
        return
    max_wait_s = 5.0
    if backends.is_on_ray(request.node):
        request.getfixturevalue("ray_cluster")  # before we look at what is there
        max_wait_s = 30.0  # Ray closes connections of its own when it comes to it
    if backends.is_launched_on_spark_by_the_test(request.node):
        request.getfixturevalue("spark_context")
    elif backends.is_on_spark(request.node):
        sessions.skip_without_spark()
    if backends.is_on_kubernetes(request.node):
        request.getfixturevalue("pods_run_this")
    with lp.testing.nothing_left_over(max_wait_s):
        yield


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as pool:
        yield pool


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB, if we may have one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)
