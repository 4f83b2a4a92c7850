"""Launches on a Kubernetes whose nodes are really apart, and are lost.

Pods have the toleration of docs/snippets/on_kubernetes/impatient.yaml, so that the cluster soon deletes them.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.hosts.host import Host
from tests.hosts.host_process import HostProcess
from tests.hosts.kubernetes import KUBECONFIG, NOTICED_S, Kubernetes
from tests.kubernetes import on_this_host
from tests.waiting import until

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.timeout(400)]

DEADLINE_S = 120.0
IMPATIENT = on_this_host.ROOT / "docs/snippets/on_kubernetes/impatient.yaml"
TOLERATED_S = 5

GREETINGS = """
import os
import launchpad as lp

class Greeter:
    def greet(self, name):
        return f"hello {name}, here is {os.environ['NODE']}"

def guest(greeters):
    for greeter in greeters:
        print(greeter.greet(os.environ["NODE"]))

program = lp.Program("greetings")
with program.group("greeter", resources=lp.Resources(placement="strict_spread")):
    greeters = [program.add_node(lp.CourierNode(Greeter)) for _ in range(3)]
with program.group("guest", resources=lp.Resources(placement="strict_spread")):
    for _ in range(3):
        program.add_node(lp.PyNode(guest, greeters))
lp.launch(program, "kubernetes")
"""

WRITER = """
import os
import time
import launchpad as lp

def write(judge):
    me = lp.current()
    with open(judge, "a") as file:
        while True:
            time.sleep(0.05)
            at = time.time()
            print("runs", me.attempt, os.environ["NODE"], at, file=file, flush=True)
            try:
                me.save(at)
            except lp.Stopped:
                # It doesn't stop when it is told to, so that its pod has to end it.
                continue
            print("saved", me.attempt, os.environ["NODE"], at, file=file, flush=True)

program = lp.Program("writing")
with program.group("writer", restart=lp.RestartPolicy()):
    program.add_node(lp.PyNode(write, "{shared}/judge"))
lp.launch(program, "kubernetes", state="writing")
"""

MAPREDUCE = """
import sysconfig
from pathlib import Path
import launchpad as lp
from examples.mapreduce.claims import check_counts
from examples.mapreduce.program import make_program
from examples.mapreduce.text import find_texts

texts = find_texts(Path(sysconfig.get_path("stdlib")), "*.py")
program = make_program(texts, mappers=4, reducers=3)
(reducers,) = lp.run(program, "kubernetes", state="mapreduce")["coordinator"]
check_counts(reducers, texts)
"""

DETACHED = """
import launchpad as lp

program = lp.Program("detached")
program.add_node(lp.PyNode(lp.wait_for_stop), label="waiter")
detached = lp.launch(program, "kubernetes", detach=True)
print("launched", flush=True)
detached.wait()
"""


class Times(NamedTuple):
    """When an attempt has written first and last, in seconds since 1970."""

    node: str
    first: float
    last: float


class Launcher:
    """The user on h1, who has a namespace of the cluster.

    Attributes:
        namespace: Its name.
        shared: A folder that all hosts have, over another network than the one that tests cut.
    """

    def __init__(self, cluster: Kubernetes, shared: Path, namespace: str) -> None:
        self.cluster = cluster
        self.shared = shared
        self.namespace = namespace
        self._judge = shared / "judge"
        self._output = shared / "output"
        settings = on_this_host.settings(str(shared), namespace, cluster.control.address)
        settings["state_volume"] = {"hostPath": {"path": str(shared)}}
        pod = settings["pod_patch"]["spec"]
        pod |= yaml.safe_load(IMPATIENT.read_text())["pod_patch"]["spec"]
        node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        pod["containers"][0]["env"].append(node)
        self._settings = shared / "settings.yaml"
        self._settings.write_text(yaml.safe_dump(settings))

    def start(self, *arguments: str) -> HostProcess:
        """Start a Python program, whose output goes to a file."""
        env = {"KUBECONFIG": KUBECONFIG, "LAUNCHPAD_KUBERNETES": str(self._settings)}
        with self._output.open("w") as output:
            return self.cluster.control.popen(
                [sys.executable, "-u", *arguments],
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def start_script(self, script: str) -> HostProcess:
        """Start a script."""
        file = self.shared / "script.py"
        file.write_text(script.replace("{shared}", str(self.shared)))
        return self.start(str(file))

    @property
    def output(self) -> str:
        """What the program has printed so far."""
        return self._output.read_text()

    def wait_for(self, pattern: str) -> None:
        """Wait until the program has printed this."""
        self.wait_until(lambda: re.search(pattern, self.output))

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition is true, but not for ever."""
        try:
            until(condition, within_s=DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(
                f"this did not happen within {DEADLINE_S:g} s; the program has printed:\n{self.output}"
            ) from error

    def attempts(self, action: str) -> dict[int, Times]:
        """Return when the attempts of the writer have done this: "runs" or "saved"."""
        attempts: dict[int, Times] = {}
        lines = self._judge.read_text().splitlines() if self._judge.exists() else []
        for line in lines:
            what, number, node, text = line.split()
            if what == action:
                at = float(text)
                _, first, _ = attempts.get(int(number), Times(node, at, at))
                attempts[int(number)] = Times(node, first, at)
        return attempts

    def nodes(self) -> dict[str, Host]:
        """Return worker → the node of its pod."""
        by_name = {node.name: node for node in self.cluster.nodes}
        path = r"{range .items[*]}{.metadata.labels.launchpad/worker} {.spec.nodeName}{'\n'}{end}"
        lines = self.kubectl("get", "pods", f"--output=jsonpath={path}").splitlines()
        return {worker: by_name[node] for worker, node in map(str.split, lines)}

    def kubectl(self, *arguments: str) -> str:
        """Run `kubectl` in the namespace, and return what it prints."""
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments)


@pytest.fixture
def launcher(
    kubernetes: Kubernetes, lasting_kubernetes: tuple[Kubernetes, Path], tmp_path: Path
) -> Iterator[Launcher]:
    namespace = tmp_path.name.replace("_", "-").lower()
    shared = lasting_kubernetes[1] / namespace
    shared.mkdir()
    kubernetes.kubectl("create", "namespace", namespace)
    launcher = Launcher(kubernetes, shared, namespace)
    until(lambda: launcher.kubectl("get", "serviceaccounts", "--output=name"))
    yield launcher
    kubernetes.network.end_faults()
    kubernetes.restore()
    kubernetes.kubectl("delete", "namespace", namespace, "--wait=false")


def test_workers_on_three_nodes_call_each_other_and_nothing_is_left(launcher: Launcher) -> None:
    with launcher.start_script(GREETINGS) as process:
        status = process.wait(DEADLINE_S)

    assert status == 0, launcher.output
    greetings = set(re.findall(r"hello (h\d), here is (h\d)", launcher.output))
    names = [node.name for node in launcher.cluster.nodes]
    assert greetings == {(guest, greeter) for guest in names for greeter in names}
    assert launcher.kubectl("get", "configmaps,services,jobs,pods", "-l", "launchpad/run") == ""


@pytest.mark.parametrize(
    ("example", "last_words"),
    [("hello_world", "the greeting is right"), ("mapreduce", "the counts agree")],
)
def test_an_example_runs_on_three_nodes(launcher: Launcher, example: str, last_words: str) -> None:
    with launcher.start("-m", f"examples.{example}", "--lp_launch_type=kubernetes") as process:
        status = process.wait(DEADLINE_S)

    assert status == 0, launcher.output
    assert last_words in launcher.output


def test_mapreduce_counts_right_although_a_node_loses_its_power(launcher: Launcher) -> None:
    with launcher.start_script(MAPREDUCE) as process:
        launcher.wait_for("% of ")
        nodes = launcher.nodes()
        lost = next(node for node in nodes.values() if node is not nodes["coordinator-0"])

        lost.lose_power()

        launcher.wait_for("lost in run .*: its pod was deleted, and not by us; it is started again")
        status = process.wait(DEADLINE_S)

    assert status == 0, launcher.output
    assert "the counts agree" in launcher.output


def test_a_node_that_is_cut_off_is_named_and_its_attempt_runs_on_but_saves_nothing_more(
    launcher: Launcher,
) -> None:
    with launcher.start_script(WRITER) as process:
        launcher.wait_until(lambda: launcher.attempts("saved"))
        node = launcher.nodes()["writer-0"]
        # Only a pod that was ready can become one that isn't.
        launcher.kubectl("wait", "--for=condition=Ready", "pods", "--all")

        node.pull_cable()

        cut_at = time.time()
        launcher.wait_for(f"node {node.name} does not answer the cluster; it may still run")
        assert time.time() - cut_at < 3 * NOTICED_S
        launcher.wait_until(lambda: 2 in launcher.attempts("saved"))
        assert launcher.attempts("runs")[2].first - cut_at > NOTICED_S + TOLERATED_S
        begun_at = time.time()
        launcher.wait_until(lambda: launcher.attempts("runs")[1].last > begun_at + 1)
        node.plug_in()
        launcher.wait_until(lambda: launcher.attempts("runs")[1].last < time.time() - 5)
        process.terminate()
        process.wait(DEADLINE_S)

    first, second = launcher.attempts("saved").values()
    assert first.last < second.first
    assert first.node == node.name
    assert second.node != node.name


def test_workers_of_a_node_that_boots_again_at_once_are_lost_and_start_again(
    launcher: Launcher,
) -> None:
    with launcher.start_script(WRITER) as process:
        launcher.wait_until(lambda: launcher.attempts("saved"))
        node = launcher.nodes()["writer-0"]

        node.lose_power()
        launcher.cluster.network.boot(node)
        launcher.cluster.restore()

        launcher.wait_until(lambda: 2 in launcher.attempts("saved"))
        process.terminate()
        process.wait(DEADLINE_S)

    assert "writer-0 lost in run (attempt 1)" in launcher.output


def test_workers_go_on_while_the_api_server_is_down(launcher: Launcher) -> None:
    with launcher.start_script(MAPREDUCE) as process:
        launcher.wait_for("% of ")

        launcher.cluster.end_api_server()
        launcher.wait_for("the cluster does not answer: .*; trying again")
        launcher.cluster.start_api_server()

        status = process.wait(DEADLINE_S)

    assert status == 0, launcher.output
    assert "the counts agree" in launcher.output
    assert "lost in" not in launcher.output


def test_a_program_whose_supervisor_was_on_a_lost_node_is_ended_by_the_next_supervisor(
    launcher: Launcher,
) -> None:
    with launcher.start_script(DETACHED) as process:
        launcher.wait_for("launched")
        launcher.wait_until(lambda: "waiter-0" in launcher.nodes())

        launcher.nodes()["supervisor"].lose_power()

        status = process.wait(2 * DEADLINE_S)

    assert status, launcher.output
    assert (
        "Another supervisor cannot take over its workers, so the program was ended"
        in launcher.output
    )
    until(lambda: "waiter-0" not in launcher.nodes())
