"""The page about Kubernetes: its commands print on a cluster what it shows; its words are the code's."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from launchpad.launch.backends.kubernetes.api.client import resource_of
from launchpad.launch.backends.kubernetes.api.permissions import (
    ASKING,
    DETACHED,
    DETACHING,
    RIGHTS,
    USEFUL,
)
from launchpad.launch.backends.kubernetes.create_run import Submitter
from launchpad.launch.backends.kubernetes.detached import launcher_manifests
from launchpad.launch.backends.kubernetes.detached.launcher_manifests import LauncherSpec
from launchpad.launch.backends.kubernetes.settings import FILE, Settings
from tests.docs import pages
from tests.docs.pages import ROOT
from tests.kubernetes.fake_cluster import FakeCluster
from tests.kubernetes.test_detached import plan_of_two
from tests.waiting import until

PAGE = ROOT / "docs" / "backends" / "kubernetes.md"
SNIPPETS = ROOT / "docs" / "snippets" / "on_kubernetes"
THIS = f"run by: {Path(__file__).relative_to(ROOT)}"
DEADLINE_S = 60.0

on_a_cluster = [
    pytest.mark.slow,
    pytest.mark.timeout(300),  # several launches each, on a machine that may be busy
    pytest.mark.usefixtures("pods_run_this"),
]


# --- the page, and a terminal ----------------------------------------------------------------------


def commands_of(first: str) -> list[tuple[str, str]]:
    """The commands of the page's block that begins with this one, each with what the page shows of it."""
    (block,) = (
        block
        for block in pages.blocks("console")
        if block.page == PAGE and block.text.startswith(f"$ {first}")
    )
    assert block.marker == THIS
    parts = re.split(r"^\$ ", block.text, flags=re.M)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


def plain(text: str) -> str:
    """Without what differs from run to run: ids, ages, names that a cluster chooses, that it is slow."""
    text = re.sub(r"(?m)^launchpad +\| .*\n", "", text)
    text = re.sub(r"counting-\d{4}-\d{6}-[0-9a-f]{4}", "counting-RUN", text)
    text = re.sub(r"counting-[0-9a-f]{8}", "counting-NAME", text)
    text = re.sub(r"(?m)^(pod/\S+)-[a-z0-9]{5}$", r"\1-POD", text)
    text = re.sub(r"counting +\d+ +kubernetes", "counting PID kubernetes", text)
    return re.sub(r"\d+(\.\d+)? (µs|ms|s|min)\b", "N s", text)


def assert_shown(shown: str, printed: str) -> None:
    assert not (why := pages.difference(plain(shown), plain(printed))), why


@dataclass
class Terminal:
    """Runs commands as a reader does, in a namespace of the kubeconfig's context."""

    namespace: str
    settings: str
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        own = {FILE: self.settings, "PATH": path, "PYTHONPATH": str(ROOT)}
        return {**os.environ, **own, **self.more}

    def run(self, command: str) -> str:
        """What it prints; it has to succeed."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def with_more(self, **more: str) -> Terminal:
        """The same, with other variables."""
        return Terminal(self.namespace, self.settings, {**self.more, **more})


@pytest.fixture
def terminal(cluster_settings: str, tmp_path: Path, runtime: Path) -> Terminal:
    """With a kubeconfig of its own, whose context is where pods are made; it sees its own programs."""
    namespace = yaml.safe_load(Path(cluster_settings).read_text()).get("namespace", "default")
    config = tmp_path / "kubeconfig"
    config.write_text(Path(os.environ["KUBECONFIG"]).read_text())
    own = {"KUBECONFIG": str(config), "LAUNCHPAD_RUNTIME_DIR": str(runtime / "here")}
    terminal = Terminal(namespace, cluster_settings, own)
    terminal.run(f"kubectl config set-context --current --namespace={namespace}")
    return terminal


@pytest.fixture
def elsewhere(terminal: Terminal, tmp_path: Path, runtime: Path) -> Terminal:
    """Where nothing on the disk tells of a run, as on another machine."""
    return terminal.with_more(
        LAUNCHPAD_RUNTIME_DIR=str(runtime / "elsewhere"),
        LAUNCHPAD_LOGGING_DIR=str(tmp_path / "logs-elsewhere"),
    )


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A folder for sockets, whose names may not be long."""
    with tempfile.TemporaryDirectory(prefix="lp-", dir="/tmp") as folder:
        yield Path(folder)


@contextmanager
def counting(terminal: Terminal, output: Path) -> Iterator[Any]:
    """The page's program goes on in another terminal, and has printed what the page shows."""
    ((command, shown),) = commands_of("python docs/snippets/on_kubernetes/counting.py")
    with output.open("w") as file:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=ROOT,
            env=terminal.environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: process.poll() is not None or "| 2\n" in output.read_text())
        assert_shown(shown, output.read_text())
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(DEADLINE_S)


# --- its commands ----------------------------------------------------------------------------------


class TestOnACluster:
    pytestmark = on_a_cluster

    def test_a_first_run_prints_what_the_page_shows(self, terminal: Terminal) -> None:
        ((command, shown),) = commands_of("python -m examples.hello_world")

        assert_shown(shown, terminal.run(command))

    def test_a_program_that_runs_is_seen_and_stopped(
        self, terminal: Terminal, tmp_path: Path
    ) -> None:
        name = ""
        with counting(terminal, tmp_path / "output") as process:
            for command, shown in commands_of("python -m launchpad ps"):
                printed = terminal.run(re.sub(r"counting-[0-9a-f]{8}", name, command))
                assert_shown(shown, printed)
                name = next(iter(re.findall(r"configmap/(\S+)", printed)), name)

            assert process.wait(DEADLINE_S) == 0
        assert (
            terminal.run("kubectl get configmaps,secrets,services,jobs -o name -l launchpad/run")
            == ""
        )

    def test_a_program_that_was_left_is_seen_and_stopped(
        self, terminal: Terminal, elsewhere: Terminal
    ) -> None:
        first, *others = commands_of("python docs/snippets/on_kubernetes/detached.py")
        terminal.run(first[0])
        until(lambda: "2\n" in elsewhere.run("python -m launchpad logs counting ticker"))

        for command, shown in others:
            assert_shown(shown, elsewhere.run(command))
        assert (
            terminal.run("kubectl get all,configmaps,secrets,roles -o name -l launchpad/run") == ""
        )

    def test_a_cluster_takes_the_plan_also_with_the_patch(self, terminal: Terminal) -> None:
        ((command, shown),) = commands_of("python docs/snippets/on_kubernetes/show_plan.py")
        assert_shown(shown, terminal.run(command))
        for settings in ("patched.yaml", "strict.yaml"):
            patched = terminal.with_more(**{FILE: str(SNIPPETS / settings)})
            assert_shown(shown, patched.run(command))

    def test_a_cluster_takes_the_network_policies(self, terminal: Terminal) -> None:
        ((command, shown),) = commands_of("kubectl apply -f docs/snippets/on_kubernetes/network")
        try:
            assert_shown(shown, terminal.run(command))
        finally:
            terminal.run(command.replace(" apply ", " delete --ignore-not-found "))

    def test_the_page_s_role_is_enough_for_an_account_and_needed(self, terminal: Terminal) -> None:
        launch = "python -m examples.hello_world --lp_launch_type=kubernetes"
        role, account, binding = commands_of("kubectl apply -f docs/snippets/on_kubernetes/role")
        bind = binding[0].replace("=me:", f"={terminal.namespace}:")
        try:
            assert_shown(account[1], terminal.run(account[0]))
            launcher = as_account(terminal, "launcher")
            refused = launcher.run(f"{launch} || true")
            unlisted = launcher.run("python -m launchpad ps")
            assert_shown(role[1], terminal.run(role[0]))
            assert_shown(binding[1], terminal.run(bind))
            launched = launcher.run(launch)
            listed = launcher.run("python -m launchpad ps")
            launcher.run("python docs/snippets/on_kubernetes/detached.py")
            stopped = launcher.run("python -m launchpad stop counting")
        finally:
            terminal.run(
                "kubectl delete role/launchpad rolebinding/launcher serviceaccount/launcher"
                " --ignore-not-found"
            )

        assert "of the cluster you may not create configmaps, get configmaps, delete" in refused
        assert "of the cluster you may not list configmaps" in unlisted
        assert "the greeting is right" in launched
        assert "you may not" not in listed
        assert "stopped after" in stopped


def as_account(terminal: Terminal, name: str) -> Terminal:
    """A terminal of somebody who is only that account."""
    config = Path(terminal.more["KUBECONFIG"])
    own = config.with_name(f"kubeconfig-{name}")
    own.write_text(config.read_text())
    theirs = terminal.with_more(KUBECONFIG=str(own))
    token = terminal.run(f"kubectl create token {name}").strip()
    theirs.run(
        f"kubectl config set-credentials {name} --token={token}"
        f" && kubectl config set-context --current --user={name}"
    )
    return theirs


# --- its words, without a cluster ------------------------------------------------------------------


def test_the_page_s_settings_for_a_strict_namespace_fit_its_program() -> None:
    done = subprocess.run(
        [sys.executable, SNIPPETS / "show_plan.py"],
        env={**os.environ, FILE: str(SNIPPETS / "strict.yaml"), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        timeout=DEADLINE_S,
        check=True,
    )

    jobs = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Job"]
    pods = {
        job["metadata"]["labels"]["launchpad/group"]: job["spec"]["template"]["spec"]
        for job in jobs
    }
    assert set(pods) == {"counter", "ticker"}
    for pod in pods.values():
        limits = pod["containers"][0]["resources"]["limits"]
        assert limits == {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "2Gi"}
    assert pods["counter"]["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert "tolerations" not in pods["ticker"]


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector fits these labels."""
    fits = {
        "Exists": lambda key, values: key in labels,
        "In": lambda key, values: labels.get(key) in values,
    }
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        fits[each["operator"]](each["key"], each.get("values"))
        for each in selector.get("matchExpressions", ())
    )


def test_the_network_policies_are_for_all_our_pods_and_no_others(cluster: FakeCluster) -> None:
    plan = plan_of_two()
    settings = Settings(image="image", send_code=False)
    submitter = replace(Submitter.here(settings), run="left-1")
    launcher_manifests.create(cluster, LauncherSpec(plan, settings, submitter))  # type: ignore[arg-type]
    labels = {"launcher": {"launchpad/worker": "launcher"}, "other": {"app": "web"}}
    for run_object in [*plan.manifests(), *cluster.objects.values()]:  # type: ignore[attr-defined]
        if run_object["kind"] == "Job":
            of_pod = run_object["spec"]["template"]["metadata"]["labels"]
            labels[of_pod["launchpad/worker"]] = of_pod

    policies = list(yaml.safe_load_all((SNIPPETS / "network_policy.yaml").read_text()))
    pods, launchers = (policy["spec"] for policy in policies)

    def selected(selector: Mapping[str, Any]) -> set[str]:
        return {name for name, of_pod in labels.items() if selects(selector, of_pod)}

    ours = {"loop-0", "loop-1", "supervisor", "launcher"}
    assert selected(pods["podSelector"]) == ours
    to_ours, to_dns = pods["egress"]
    for rule in (pods["ingress"][0]["from"], to_ours["to"]):
        assert [selected(peer["podSelector"]) for peer in rule] == [ours]
    assert {(port["protocol"], port["port"]) for port in to_dns["ports"]} == {
        ("UDP", 53),
        ("TCP", 53),
    }
    assert selected(launchers["podSelector"]) == {"supervisor", "launcher"}
    assert {port["port"] for rule in launchers["egress"] for port in rule["ports"]} == {443, 6443}


def test_the_role_allows_what_is_asked_for_and_no_more() -> None:
    rules = yaml.safe_load((SNIPPETS / "role.yaml").read_text())["rules"]

    allowed = {
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert allowed == {
        (verb, *resource_of(kind))
        for kind, verbs in {*RIGHTS, *DETACHED, *DETACHING, *USEFUL, *ASKING}
        for verb in verbs.split()
    }


SAID_BY_OTHERS = {
    "Insufficient cpu",
    "nvidia.com/gpu",
    "taint",
    "selector",
    "ModuleNotFoundError",
    "Evicted",
    "exceeds the limit",
}
SOURCES = [
    *(ROOT / "launchpad" / "launch" / "backends" / "kubernetes").rglob("*.py"),
    ROOT / "launchpad" / "launch" / "planning" / "planner.py",
    ROOT / "launchpad" / "launch" / "backends" / "launcher_info.py",
    ROOT / "launchpad" / "courier" / "errors.py",
]


def quotes(heading: str, column: int) -> list[str]:
    """What stands as code in a column of the table under a heading of the page."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [quote for row in rows for quote in re.findall(r"`([^`]+)`", row.split(" | ")[column])]


@pytest.mark.parametrize(
    "quote", [*quotes("How a worker ends", 1), *quotes("When it does not work", 0)]
)
def test_what_the_page_quotes_the_code_says(quote: str) -> None:
    parts = [part.strip() for part in re.split(r"…|\d[\d.]*", quote)]

    assert quote in SAID_BY_OTHERS or all(any(part in text for text in _texts()) for part in parts)


@functools.cache
def _texts() -> list[str]:
    """The strings in the code, and the names of its classes."""
    found = [node for source in SOURCES for node in ast.walk(ast.parse(source.read_text()))]
    strings = [node.value for node in found if isinstance(node, ast.Constant)]
    names = [node.name for node in found if isinstance(node, ast.ClassDef)]
    return [text for text in [*strings, *names] if isinstance(text, str)]
