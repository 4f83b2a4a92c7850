"""Launches on a Ray whose hosts are really apart: no home is shared, tokens are wanted, hosts are lost."""

from __future__ import annotations

import os
import re
import time

import pytest

from tests.hosts.attempts import Written, read_attempts
from tests.hosts.host import Host
from tests.hosts.host_process import HostProcess
from tests.hosts.network import Network
from tests.hosts.ray_cluster import PROJECT, RayCluster
from tests.hosts.users import UID, path_on, write_own_file
from tests.waiting import until

DEADLINE_S = 60.0
NAMES = ("h1", "h2", "h3")

GREETINGS = """
import os
import socket
import launchpad as lp
from greeting import TEXT

class Greeter:
    def greet(self, name):
        return f"{TEXT} {name}, here is {socket.gethostname()}"

class Guest:
    def __init__(self, greeters):
        self._greeters = greeters

    def run(self):
        for greeter in self._greeters:
            print(greeter.greet(socket.gethostname()))

if __name__ == "__main__":
    program = lp.Program("greetings")
    with program.group("greeter", resources=lp.Resources(placement="strict_spread")):
        greeters = [program.add_node(lp.CourierNode(Greeter)) for _ in range(3)]
    with program.group("guest", resources=lp.Resources(placement="strict_spread")):
        for _ in range(3):
            program.add_node(lp.PyClassNode(Guest, greeters))
    with lp.launch(program, "ray") as running:
        running.results("guest", timeout_s=50)
"""

MAPREDUCE = """
import sys
import sysconfig
from pathlib import Path
import launchpad as lp
from examples.mapreduce.claims import check_counts
from examples.mapreduce.program import make_program
from examples.mapreduce.text import find_texts

texts = find_texts(Path(sysconfig.get_path("stdlib")), "*.py")
program = make_program(texts, mappers=4, reducers=3)
# The coordinator can't be restarted.
safe = {"coordinator": lp.Resources(labels={"is_head": "yes"})}
(reducers,) = lp.run(program, "ray", state=sys.argv[1], resources=safe)["coordinator"]
check_counts(reducers, texts)
"""

# It asks for room, and so has a placement.
WRITER = """
import socket
import sys
import time
import launchpad as lp

def write(judge):
    me = lp.current()
    with open(judge, "a") as file:
        while True:
            at = time.time()
            me.save(at)
            # A line means that a state was saved.
            print(me.attempt, socket.gethostname(), at, file=file, flush=True)
            time.sleep(0.05)

folder = sys.argv[1]
program = lp.Program("writing")
with program.group("writer", resources=lp.Resources(cpus=1), restart=lp.RestartPolicy()):
    program.add_node(lp.PyNode(write, folder + "/judge"))
lp.launch(program, "ray", state=folder + "/state")
"""

SMALL = """
import launchpad as lp

program = lp.Program("small")
program.add_node(lp.PyNode(print, "never printed"), label="small")
lp.launch(program, "ray")
"""


class Launcher:
    """The user's project on h1 and h2, from which she launches programs."""

    def __init__(self, network: Network, cluster: RayCluster) -> None:
        self.network = network
        self.cluster = cluster
        self.head = network.hosts[0]

    def start(self, script: str, *arguments: str, host: Host | None = None) -> HostProcess:
        file = PROJECT / "script.py"
        write_own_file(host or self.head, file, script)
        return self.cluster.launch(str(file), *arguments, host=host)


@pytest.fixture
def launcher(ray_network: Network, ray_on_hosts: RayCluster) -> Launcher:
    return Launcher(ray_network, ray_on_hosts)


def finish(process: HostProcess) -> str:
    """Return the output of a launch that succeeds."""
    with process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, output
    return output


def test_workers_on_all_hosts_have_the_launchers_code_and_call_each_other(
    launcher: Launcher,
) -> None:
    write_own_file(launcher.head, PROJECT / "greeting.py", "TEXT = 'good morning'\n")

    output = finish(launcher.start(GREETINGS))

    greetings = set(re.findall(r"good morning (h\d), here is (h\d)", output))
    assert greetings == {(guest, greeter) for guest in NAMES for greeter in NAMES}
    assert not path_on(launcher.network.hosts[2], PROJECT).exists()


@pytest.mark.parametrize(
    ("example", "answer"),
    [("hello_world", "the greeting is right"), ("es", "the answer is right")],
)
def test_examples_give_the_right_answer(launcher: Launcher, example: str, answer: str) -> None:
    output = finish(launcher.cluster.launch("-m", f"examples.{example}", "--lp_launch_type=ray"))

    assert answer in output


def test_mapreduce_counts_right_although_a_host_loses_its_power(launcher: Launcher) -> None:
    h3 = launcher.network.hosts[2]

    with launcher.start(MAPREDUCE, str(launcher.cluster.disk / "mapreduce")) as process:
        until(lambda: "% of " in process.read_line())
        h3.lose_power()
        lost_at = time.monotonic()
        until(lambda: "its Ray actor on 10.77.0.3 was lost" in process.read_line())
        noticed_s = time.monotonic() - lost_at
        output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0, output
    assert "the counts agree" in output
    assert 9 < noticed_s < 30


# --- a host that is cut off


class Writing:
    """A worker on h3 that writes its attempt, host and time every 50 ms."""

    def __init__(self, launcher: Launcher, name: str, launched_on: Host) -> None:
        folder = launcher.cluster.disk / name
        folder.mkdir()
        self._judge = folder / "judge"
        self._judge.touch()
        for path in (folder, self._judge):
            os.chown(path, UID, UID)
        self._process = launcher.start(WRITER, str(folder), host=launched_on)
        until(self.attempts)

    def attempts(self) -> dict[int, Written]:
        return read_attempts(self._judge)

    def stop(self) -> str:
        """Stop the launcher, and return what it has printed."""
        self._process.terminate()
        output, _ = self._process.communicate(timeout=DEADLINE_S)
        return output


def test_no_two_attempts_of_a_worker_run_while_its_host_is_cut_off(launcher: Launcher) -> None:
    h1, _, h3 = launcher.network.hosts
    writing = Writing(launcher, "cut", launched_on=h1)

    h3.pull_cable()
    cut_at = time.time()
    until(lambda: 2 in writing.attempts())
    h3.plug_in()
    output = writing.stop()

    first, second = writing.attempts().values()
    assert first.host == "h3" != second.host
    assert first.last < cut_at + 15
    assert first.last < second.first
    assert "writer-0 lost in run (attempt 1): its Ray actor on 10.77.0.3 was lost" in output
    assert "starts elsewhere once Ray has noticed" in output


def test_a_worker_whose_host_only_ray_takes_for_dead_is_ended_before_it_starts_again(
    launcher: Launcher,
) -> None:
    h1, h2, h3 = launcher.network.hosts
    writing = Writing(launcher, "dead-for-ray", launched_on=h2)

    # The launcher on h2 renews the lease until Ray, whose head is h1, reports the death of h3.
    launcher.network.cut(h1, h3)
    cut_at = time.time()
    until(lambda: 2 in writing.attempts())
    launcher.network.end_losses()
    writing.stop()

    first, second = writing.attempts().values()
    assert first.host == "h3" != second.host
    assert first.last > cut_at + 10
    assert first.last < second.first


# --- launches that are refused


def refusal(process: HostProcess) -> str:
    """Return the error of a launch that is refused."""
    with process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, output
    return output.strip().splitlines()[-1]


def test_a_launch_that_does_not_send_the_token_says_so(launcher: Launcher) -> None:
    line = refusal(launcher.cluster.launch("-c", SMALL, auth_mode=""))

    assert "has not let this process in: it wants a token, and Ray sends none unless" in line
    assert "RAY_AUTH_MODE=token" in line


def test_a_launch_without_a_token_says_where_it_should_be(launcher: Launcher) -> None:
    launcher.cluster.remove_token(launcher.head)

    line = refusal(launcher.cluster.launch("-c", SMALL))

    assert "RAY_AUTH_MODE is 'token', and there is no token here" in line
    assert "copy ~/.ray/auth_token of the cluster's head node to /home/alice/.ray/auth" in line


def test_a_launch_with_another_token_says_which_one_it_has_sent(launcher: Launcher) -> None:
    launcher.cluster.write_token(launcher.head, "0123456789abcdef" * 4)

    line = refusal(launcher.cluster.launch("-c", SMALL))

    assert "its token is not the one in /home/alice/.ray/auth_token. To use it, copy" in line


def test_a_launch_on_a_host_that_is_no_node_says_so(launcher: Launcher) -> None:
    h2 = launcher.network.hosts[1]
    launcher.cluster.stop_node(h2)

    line = refusal(launcher.cluster.launch("-c", SMALL, host=h2))

    assert "has no node on this machine" in line
    assert f"`ray start --address={launcher.cluster.address}`" in line


def test_a_head_that_does_not_answer_is_named(launcher: Launcher) -> None:
    h2 = launcher.network.hosts[1]
    launcher.network.cut(launcher.head, h2)

    line = refusal(launcher.cluster.launch("-c", SMALL, host=h2))

    assert f"no Ray cluster could be used at RAY_ADDRESS={launcher.cluster.address}" in line
    assert "Is that host up, and may this machine reach its port 6379?" in line
