"""Launches over ssh on hosts that are really apart: nothing is shared, and hosts are lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.attempts import Written, read_attempts
from tests.hosts.host import Host
from tests.hosts.host_process import HostProcess
from tests.hosts.network import Network
from tests.hosts.sshd import HOME, USER, Sshd
from tests.hosts.sshd import why_not as why_no_sshd
from tests.hosts.users import UID, path_on, write_own_file
from tests.waiting import until

DEADLINE_S = 60.0
NAMES = ("h1", "h2", "h3")

GREETINGS = """
import os
import socket
import launchpad as lp

class Greeter:
    def greet(self, name):
        return f"hello {name}, here is {socket.gethostname()}"

class Guest:
    def __init__(self, greeters):
        self._greeters = greeters

    def run(self):
        for greeter in self._greeters:
            print(greeter.greet(socket.gethostname()))

program = lp.Program("greetings")
with program.group("greeter", resources=lp.Resources(placement="strict_spread")):
    greeters = [program.add_node(lp.CourierNode(Greeter)) for _ in range(3)]
with program.group("guest", resources=lp.Resources(placement="strict_spread")):
    for _ in range(3):
        program.add_node(lp.PyClassNode(Guest, greeters))
with lp.launch(program, "ssh", hosts=%s) as running:
    running.results("guest", timeout_s=50)
"""

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
with program.group("writer", restart=lp.RestartPolicy()):
    program.add_node(lp.PyNode(write, folder + "/judge"))
lp.launch(program, "ssh", hosts=sys.argv[2].split(","), state=folder + "/state")
"""

RANKS = """
import os
import signal
import socket

rank = int(os.environ["RANK"])
size = int(os.environ["WORLD_SIZE"])
master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
generation = os.environ["TORCHELASTIC_RESTART_COUNT"]
if rank == 0:
    with socket.create_server(("", master[1])) as server:
        for _ in range(1, size):
            connection, _ = server.accept()
            connection.settimeout(20)
            met = connection.recv(100).decode()
            print(f"generation {generation}: {met} meets {socket.gethostname()}")
else:
    if generation == "0" and rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        try:
            connection = socket.create_connection(master, timeout=1)
            break
        except ConnectionRefusedError:
            pass
    connection.sendall(f"rank {rank} of {socket.gethostname()}".encode())
    connection.close()
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
program = make_program(texts, mappers=4, reducers=3)  # and the coordinator, the eighth, on h2
hosts = ["h1", "h2", "h3"]
(reducers,) = lp.run(program, "ssh", hosts=hosts, state=sys.argv[1])["coordinator"]
check_counts(reducers, texts)
"""

PS = """
import sys
import launchpad as lp
from examples._shared.problem import Problem
from examples.ps.claims import check_learned
from examples.ps.program import make_program

problem = Problem()
program = make_program(problem)
hosts = ["h1", "h2", "h3"]
trained = lp.run(program, "ssh", hosts=hosts, state=sys.argv[1])["worker"]
check_learned(trained, problem, "sync")
"""

ES = """
import sys
import launchpad as lp
from examples.es.cartpole import CartPole
from examples.es.claims import check_equals_training_alone, train_alone
from examples.es.evolution import Strategy
from examples.es.program import make_program

program = make_program()  # with the trainer, the fifth, on h2
hosts = ["h1", "h2", "h3"]
(trained,) = lp.run(program, "ssh", hosts=hosts, state=sys.argv[1])["trainer"]
check_equals_training_alone(trained.parameters, train_alone(CartPole(), Strategy()))
"""

EXAMPLES = {
    "mapreduce": (MAPREDUCE, "% of ", "the counts agree"),
    "ps": (PS, "step 100: loss", "ok    workers in step learn what one process learns"),
    "es": (ES, "seeds 0 to 15", "ok    training in one process gives the same bits"),
}
"""Example → its script, a line that it prints in the middle, and one that says that the answer is right."""


class Launcher:
    """The user's home on h1, from which she launches programs on the other hosts."""

    def __init__(self, network: Network, sshd: Sshd) -> None:
        self.network = network
        self.sshd = sshd
        self.host = network.hosts[0]

    def start(self, script: str, *arguments: str) -> HostProcess:
        file = HOME / "project/script.py"
        write_own_file(self.host, file, script)
        command = [sys.executable, "-u", str(file), *arguments]
        return self.host.popen(command, user=USER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, script: str) -> tuple[int, str]:
        """Return the exit status of a launch, and its output."""
        with self.start(script) as process:
            output, _ = process.communicate(timeout=DEADLINE_S)
        return process.returncode, output

    def run_in_ranks(self, script: str, n_ranks: int, hosts: str) -> tuple[int, str]:
        """Return the exit status of `launchpad run --ranks`, and its output."""
        file = HOME / "project/script.py"
        write_own_file(self.host, file, script)
        command = [sys.executable, "-u", "-m", "launchpad", "run", f"--ranks={n_ranks}"]
        with self.host.popen(
            [*command, "--launch_type=ssh", str(file)],
            user=USER,
            env={"LP_HOSTS": hosts},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            output, _ = process.communicate(timeout=DEADLINE_S)
        return process.returncode, output


@pytest.fixture
def launcher(ssh_network: Network, sshd: Sshd) -> Launcher:
    return Launcher(ssh_network, sshd)


def name_of(pid: int) -> str:
    """Return the name of a process, which is a worker's own."""
    return _stat(pid)[0]


def state_of(pid: int) -> str:
    """Return the letter for the state of a process; empty if it is gone."""
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[str, str]:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(") ")
    except OSError:
        return "", ""
    return name, rest[0]


def workers_on(host: Host) -> list[str]:
    """Return the command lines of launchpad's processes on a host."""
    lines = []
    for pid in host.pids():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "bootstrap.py" in line or "launchpad" in line:
            lines.append(line)
    return lines


def leftovers(host: Host) -> list[str]:
    """Return what launches have left in a host's /tmp: code, or directories of runs."""
    tmp = path_on(host, Path("/tmp"))
    return [
        str(path)
        for pattern in ("launchpad-code-*", "launchpad-*[0-9]/*")
        for path in tmp.glob(pattern)
    ]


def test_workers_on_all_hosts_call_each_other_and_nothing_is_left(launcher: Launcher) -> None:
    status, output = launcher.run(GREETINGS % ["h1", "h2", "h3"])

    assert status == 0, output
    greetings = set(re.findall(r"hello (h\d), here is (h\d)", output))
    assert greetings == {(guest, greeter) for guest in NAMES for greeter in NAMES}
    for host in launcher.network.hosts:
        until(lambda host=host: not workers_on(host))  # type: ignore[misc]
        assert leftovers(host) == []


def test_a_script_for_torchrun_runs_in_ranks_on_all_hosts(launcher: Launcher) -> None:
    status, output = launcher.run_in_ranks(RANKS, n_ranks=3, hosts="h1,h2,h3")

    assert status == 0, output
    met = set(re.findall(r"generation 1: (.*) meets h1", output))
    assert met == {"rank 1 of h2", "rank 2 of h3"}, output


def refusal(launcher: Launcher, hosts: object) -> str:
    """Return the last line of a launch that is refused."""
    status, output = launcher.run(GREETINGS % (hosts,))
    assert status == 1, output
    return output.strip().splitlines()[-1]


def test_a_host_without_power_is_named(launcher: Launcher) -> None:
    launcher.network.hosts[2].lose_power()

    line = refusal(launcher, ["h2", "h3"])

    assert "h3 cannot be reached: ssh: connect to host h3 port 22" in line
    assert "is it up, and may this machine reach its ssh port?" in line


def test_a_host_whose_key_is_unknown_is_named(launcher: Launcher, sshd: Sshd) -> None:
    sshd.forget_hosts(launcher.host)

    line = refusal(launcher, ["h2"])

    assert "h2 cannot be reached: Host key verification failed.: log in once by hand" in line


def test_a_host_that_does_not_accept_the_user_is_named(launcher: Launcher, sshd: Sshd) -> None:
    sshd.lose_key(launcher.host)

    line = refusal(launcher, ["h2"])

    assert "h2 cannot be reached: alice@h2: Permission denied (publickey)" in line
    assert "have your public key accepted there" in line


def test_two_hosts_that_cannot_reach_each_other_are_named(launcher: Launcher) -> None:
    _, h2, h3 = launcher.network.hosts
    launcher.network.cut(h2, h3)

    line = refusal(launcher, ["h2", "h3"])

    assert f"h2 cannot reach h3 at {h3.address}: no answer within 2 s" in line
    assert f"h3 cannot reach h2 at {h2.address}: no answer within 2 s" in line
    assert "allow that between the hosts" in line


def test_a_killed_launcher_leaves_nothing_on_any_host(launcher: Launcher) -> None:
    script = GREETINGS.replace("print(greeter", "lp.wait_for_stop() or print(greeter")
    with launcher.start(script % ["h2", "h3", "h1"]) as process:
        until(lambda: all(workers_on(host) for host in launcher.network.hosts))
        process.kill()

    for host in launcher.network.hosts:
        until(lambda host=host: not workers_on(host), 2.0)  # type: ignore[misc]
        assert leftovers(host) == []


class Writing:
    """A worker that writes its attempt, host and time every 50 ms."""

    def __init__(self, launcher: Launcher, folder: Path, hosts: str) -> None:
        self.judge = folder / "judge"
        self.judge.unlink(missing_ok=True)
        self.process = launcher.start(WRITER, str(folder), hosts)
        until(lambda: self.judge.exists() and self.judge.stat().st_size)

    def stop(self) -> str:
        """Stop the launcher, and return what it has printed."""
        self.process.terminate()
        output, _ = self.process.communicate(timeout=DEADLINE_S)
        return output

    def attempts(self) -> dict[int, Written]:
        return read_attempts(self.judge)


@pytest.fixture(scope="module")
def shared_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    os.chown(folder, UID, UID)
    return folder


@pytest.fixture(scope="module")
def disk_network(hosts_are_possible: None, shared_disk: Path) -> Iterator[tuple[Network, Sshd]]:
    """Return a network whose hosts share a disk, over another cable than that which is pulled."""
    reason = why_no_sshd()
    if reason:
        pytest.skip(reason)
    with Network(3, shared=[shared_disk]) as network:
        yield network, Sshd(network)


@pytest.fixture
def disk_launcher(disk_network: tuple[Network, Sshd]) -> Iterator[Launcher]:
    """Return a launcher whose hosts share a disk. Afterwards only an sshd runs on them."""
    network, sshd = disk_network
    yield Launcher(network, sshd)
    network.end_faults()
    network.kill_all(keep=[sshd.daemon(host) for host in network.hosts])
    sshd.restore()


def test_no_two_attempts_of_a_worker_run_while_its_host_is_cut_off_for_a_minute(
    disk_launcher: Launcher, shared_disk: Path
) -> None:
    h2 = disk_launcher.network.hosts[1]
    writing = Writing(disk_launcher, shared_disk, "h2,h3")

    h2.pull_cable()
    cut_at = time.time()
    until(lambda: 2 in writing.attempts())
    until(lambda: time.time() > cut_at + 60)
    h2.plug_in()
    until(lambda: not workers_on(h2))
    writing.stop()

    (first_host, _, first_end), (second_host, second_begin, _) = writing.attempts().values()
    assert (first_host, second_host) == ("h2", "h3")
    assert first_end < cut_at + 15
    assert first_end < second_begin


def test_an_attempt_on_a_frozen_host_saves_nothing_more_after_the_thaw(
    disk_launcher: Launcher, shared_disk: Path
) -> None:
    h2 = disk_launcher.network.hosts[1]
    writing = Writing(disk_launcher, shared_disk, "h2,h3")

    h2.freeze()
    until(lambda: 2 in writing.attempts())
    (worker,) = [pid for pid in h2.pids() if name_of(pid) == "writer-0"]
    # Those that would kill the worker are slow, so that it runs on after the thaw.
    others = [pid for pid in h2.pids() if pid not in (worker, disk_launcher.sshd.daemon(h2))]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    h2.thaw()
    until(lambda: state_of(worker) in ("", "Z"))
    for pid in others:
        os.kill(pid, signal.SIGCONT)
    until(lambda: not workers_on(h2))
    output = writing.stop()

    assert "writer-0 lost in run (attempt 1): its host h2 was lost" in output
    (_, _, last_save), (_, first_save, _) = writing.attempts().values()
    assert last_save < first_save


def test_a_worker_waits_for_its_only_host_to_come_back(
    disk_launcher: Launcher, shared_disk: Path
) -> None:
    h2 = disk_launcher.network.hosts[1]
    writing = Writing(disk_launcher, shared_disk, "h2")

    h2.lose_power()
    disk_launcher.network.boot(h2)
    disk_launcher.sshd.restore()
    until(lambda: 2 in writing.attempts())
    output = writing.stop()

    assert "its host h2 was lost" in output
    assert [host for host, _, _ in writing.attempts().values()] == ["h2", "h2"]


def test_hosts_that_the_launcher_is_cut_off_from_end_their_workers(
    disk_launcher: Launcher, shared_disk: Path
) -> None:
    h1, h2, h3 = disk_launcher.network.hosts
    writing = Writing(disk_launcher, shared_disk, "h2,h3")

    h1.pull_cable()
    until(lambda: not workers_on(h2) and not workers_on(h3))
    h1.plug_in()
    until(lambda: 2 in writing.attempts())
    writing.stop()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_the_right_answer_although_a_host_loses_its_power(
    disk_launcher: Launcher, shared_disk: Path, name: str
) -> None:
    script, in_the_middle, right = EXAMPLES[name]
    h3 = disk_launcher.network.hosts[2]
    with disk_launcher.start(script, str(shared_disk / name)) as process:
        line = until(lambda: in_the_middle in process.read_line())
        assert workers_on(h3), line
        h3.lose_power()
        output, _ = process.communicate(timeout=2 * DEADLINE_S)

    assert process.returncode == 0, output
    assert "lost in run (attempt 1): its host h3 was lost" in output
    assert right in output


def test_hosts_named_in_a_file_are_used(launcher: Launcher, sshd: Sshd) -> None:
    file = HOME / "project/hosts"
    write_own_file(launcher.host, file, "h2\nh3  # the last\nh1\n")

    status, output = launcher.run(GREETINGS % repr(str(file)))

    assert status == 0, output
