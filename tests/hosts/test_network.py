"""A network of hosts: each fault does what it says and ends, and nothing is left of a network."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.hosts import cgroups
from tests.hosts.host import CommandFailedError, Direction, Host
from tests.hosts.host_process import HostProcess
from tests.hosts.network import Network
from tests.hosts.probes import Connection, Datagrams
from tests.waiting import runs, until

ROOT = Path(__file__).parents[2]

# --- a host --------------------------------------------------------------------------------------


def test_each_host_has_a_name_and_address_of_its_own_and_knows_the_others(
    network: Network,
) -> None:
    h1, h2, _ = network.hosts

    names = [host.run(["hostname"]).stdout.strip() for host in network.hosts]
    address = h1.run(["getent", "ahostsv4", h2.name]).stdout.split()[0]

    assert names == ["h1", "h2", "h3"]
    assert address == h2.address


def test_what_a_host_writes_is_on_its_disk_only(network: Network) -> None:
    h1, h2, _ = network.hosts

    h1.run(["sh", "-c", "echo mine >/etc/own && echo mine >/tmp/own && echo mine >/dev/shm/own"])

    for path in ("etc/own", "tmp/own", "dev/shm/own"):
        assert (h1.root / path).read_text() == "mine\n"
        assert not (h2.root / path).exists()
        assert not Path("/", path).exists()


def test_a_shared_folder_is_the_same_on_all_hosts_and_outside(
    hosts_are_possible: None, tmp_path: Path
) -> None:
    with Network(2, shared=[tmp_path]) as network:
        h1, h2 = network.hosts

        h1.run(["sh", "-c", f"echo ours >{tmp_path}/file"])

        assert h2.run(["cat", f"{tmp_path}/file"]).stdout == "ours\n"
        assert (tmp_path / "file").read_text() == "ours\n"


def test_a_host_sees_its_own_processes_only(network: Network) -> None:
    h1, h2, _ = network.hosts

    with h1.popen(["sleep", "1000"]) as sleep:
        command = sleep.command()
        until(lambda: command.name() == "sleep")
        list_names = ["sh", "-c", "cat /proc/[0-9]*/comm"]
        names = [host.run(list_names).stdout.split() for host in (h1, h2)]
        pids = [host.pids() for host in (h1, h2)]

    assert "sleep" in names[0]
    assert "sleep" not in names[1]
    assert pids == [[command.pid], []]


def test_monotonic_clocks_differ_by_host(network: Network) -> None:
    read_clock = [sys.executable, "-c", "import time; print(time.monotonic())"]

    clocks = [float(host.run(read_clock).stdout) for host in network.hosts]

    assert clocks[0] + 500 < clocks[1] < clocks[2] - 500


def test_times_of_a_hosts_clock_can_be_converted_to_ours(network: Network) -> None:
    read_clock = [sys.executable, "-c", "import time; print(time.monotonic())"]

    for host in network.hosts:
        before = time.monotonic()
        clock = float(host.run(read_clock).stdout)
        after = time.monotonic()

        assert before <= clock - host.clock_ahead_s <= after


def test_signals_reach_the_command_and_its_end_is_seen(network: Network) -> None:
    source = (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(7)); print(1); signal.pause()"
    )
    with network.hosts[0].python(source) as process:
        process.read_line()

        process.terminate()

        assert process.wait(10) == 7


def test_killing_a_process_kills_the_command(network: Network) -> None:
    h1 = network.hosts[0]
    process = h1.popen(["sleep", "1000"])
    until(h1.pids)

    process.kill()

    assert process.wait(10) == -signal.SIGKILL
    until(lambda: not h1.pids())


def test_run_does_not_wait_for_daemons(network: Network) -> None:
    h1 = network.hosts[0]

    done = h1.run(["sh", "-c", "sleep 1000 & echo started"])

    assert done.stdout == "started\n"
    assert len(h1.pids()) == 1


def test_a_command_that_fails_is_an_error_with_what_it_wrote(network: Network) -> None:
    with pytest.raises(
        CommandFailedError, match=r"on h1, ls /nowhere ended with 2: .*No such file"
    ):
        network.hosts[0].run(["ls", "/nowhere"])


def test_a_command_that_takes_too_long_is_killed(network: Network) -> None:
    h1 = network.hosts[0]

    with pytest.raises(subprocess.TimeoutExpired):
        h1.run(["sleep", "1000"], timeout_s=0.1)

    until(lambda: not h1.pids())


# --- the cable -----------------------------------------------------------------------------------


@pytest.fixture
def mailboxes(network: Network) -> Iterator[list[Datagrams]]:
    """Return programs on the three hosts that have sent each other datagrams."""
    with contextlib.ExitStack() as stack:
        boxes = [stack.enter_context(Datagrams(host)) for host in network.hosts]
        for source in boxes:
            for goal in boxes:
                if goal is not source:
                    source.send(goal, f"hello-from-{source.name}")
                    goal.wait_for(f"hello-from-{source.name}")
        yield boxes


def has_carrier(host: Host) -> bool:
    return (host.run(["cat", "/sys/class/net/eth0/carrier"])).stdout == "1\n"


def lost(boxes: list[Datagrams], end: Callable[[], None]) -> set[str]:
    """Return which datagrams get lost, "12" from h1 to h2, between now and the end of a fault."""
    pairs = [(source, goal) for source in range(3) for goal in range(3) if source != goal]
    for source, goal in pairs:
        boxes[source].send(boxes[goal], f"during-{source + 1}{goal + 1}")
    end()
    for source, goal in pairs:
        boxes[source].send(boxes[goal], f"after-{source + 1}{goal + 1}")
    # Datagrams from one host to another don't overtake each other.
    for source, goal in pairs:
        boxes[goal].wait_for(f"after-{source + 1}{goal + 1}")
    return {
        f"{source + 1}{goal + 1}"
        for source, goal in pairs
        if f"during-{source + 1}{goal + 1}" not in boxes[goal].received
    }


def test_without_a_fault_nothing_is_lost(mailboxes: list[Datagrams]) -> None:
    assert lost(mailboxes, end=lambda: None) == set()


def test_a_pulled_cable_is_seen_by_its_host_and_stops_packets_until_it_is_plugged_in(
    network: Network,
) -> None:
    h1, h2, _ = network.hosts
    with Connection(h1, h2) as connection:
        h2.pull_cable()
        carriers = [has_carrier(host) for host in network.hosts]
        answer = connection.probe()
        h2.plug_in()
        until(lambda: has_carrier(h2))
        later_answer = connection.probe()

    assert carriers == [True, False, True]
    assert answer == "silent"
    assert later_answer == "acknowledged"


@pytest.mark.parametrize(
    ("direction", "losses"),
    [
        ("in", {"12", "32"}),
        ("out", {"21", "23"}),
        ("both", {"12", "32", "21", "23"}),
    ],
)
def test_a_blackhole_loses_frames_in_its_direction_only(
    direction: Direction, losses: set[str], network: Network, mailboxes: list[Datagrams]
) -> None:
    h2 = network.hosts[1]

    h2.blackhole(direction)

    assert has_carrier(h2)
    assert lost(mailboxes, end=h2.end_losses) == losses


def test_a_cut_between_two_hosts_is_for_these_two_only(
    network: Network, mailboxes: list[Datagrams]
) -> None:
    h1, h2, _ = network.hosts

    network.cut(h1, h2)

    assert lost(mailboxes, end=network.end_losses) == {"12", "21"}


def test_a_cut_may_be_one_way(network: Network, mailboxes: list[Datagrams]) -> None:
    h1, h2, _ = network.hosts

    network.cut(h1, h2, one_way=True)

    assert lost(mailboxes, end=network.end_losses) == {"12"}


def test_a_host_that_got_another_address_is_found_by_its_name_and_silent_at_the_old_one(
    network: Network,
) -> None:
    h1, h2, _ = network.hosts
    with Connection(h1, h2) as connection:
        network.readdress(h2, "10.77.0.99")
        answer = connection.probe()
    with Connection(h1, h2) as connection:
        new_answer = connection.probe()

    assert answer == "silent"
    assert new_answer == "acknowledged"
    assert h1.run(["getent", "ahostsv4", "h2"]).stdout.split()[0] == "10.77.0.99"


def test_a_slow_cable_delays_each_way_and_keeps_connections(network: Network) -> None:
    h1, h2, _ = network.hosts
    with Connection(h1, h2) as connection:
        h2.slow_down(delay_ms=30)
        delayed_s = connection.echo_s(1)
        h2.speed_up()
        quick_s = min(connection.echo_s(1) for _ in range(20))

    assert delayed_s >= 0.06
    assert quick_s < 0.06


def test_a_slow_cable_loses_a_share_of_the_frames(
    network: Network, mailboxes: list[Datagrams]
) -> None:
    h2 = network.hosts[1]
    first, second, _ = mailboxes

    h2.slow_down(loss=0.5)
    for number in range(400):
        first.send(second, f"{number}")
    # Only then has the relay passed on, or lost, all numbers.
    until(lambda: send_and_look(first, second, "last"))

    numbers = [text for text in second.received if text.isdigit()]
    assert 100 < len(numbers) < 300


def send_and_look(source: Datagrams, goal: Datagrams, text: str) -> bool:
    """Send a datagram that may get lost, and return True if one with this text has arrived."""
    source.send(goal, text)
    goal.send(goal, "look")
    return text in goal.received


def test_a_slow_cable_has_a_rate_for_each_way(network: Network) -> None:
    h1, h2, _ = network.hosts
    n_bytes = 500_000
    with Connection(h1, h2) as connection:
        h2.slow_down(mbit=8)
        limited_s = connection.echo_s(n_bytes)
        h2.speed_up()
        unlimited_s = connection.echo_s(n_bytes)

    # Both ways are used at the same time.
    assert limited_s >= n_bytes * 8 / 8e6
    assert unlimited_s < limited_s


def test_a_slow_cable_loses_what_a_blackhole_loses(
    network: Network, mailboxes: list[Datagrams]
) -> None:
    h2 = network.hosts[1]

    h2.blackhole("in")
    h2.slow_down(delay_ms=1)

    assert lost(mailboxes, end=h2.end_losses) == {"12", "32"}


# --- the machine ---------------------------------------------------------------------------------


def test_a_frozen_host_runs_nothing_and_its_kernel_acknowledges(network: Network) -> None:
    h1, h2, _ = network.hosts
    with Connection(h1, h2) as connection:
        command = connection.server.command()
        h2.freeze()
        used = command.cpu_times()
        answer = connection.probe()
        used_later = command.cpu_times()
        h2.thaw()
        connection.echo_s(1)

    assert answer == "acknowledged"
    assert used == used_later


@pytest.mark.skipif(
    cgroups.hierarchies()[:1] == [Path("/sys/fs/cgroup/freezer")],
    reason="in version 1 of cgroups, only thawed processes die",
)
def test_a_process_of_a_frozen_host_can_be_killed(network: Network) -> None:
    h1 = network.hosts[0]
    with h1.popen(["sleep", "1000"]) as process:
        process.command()
        h1.freeze()

        process.kill()

        assert process.wait(10) == -signal.SIGKILL


def test_a_paused_host_acknowledges_nothing_until_it_is_resumed(network: Network) -> None:
    h1, h2, _ = network.hosts
    with Connection(h1, h2) as connection:
        h2.pause()
        answer = connection.probe()
        h2.resume()
        later_answer = connection.probe()
        connection.echo_s(1)

    assert answer == "silent"
    assert later_answer == "acknowledged"


def test_a_resumed_host_still_loses_what_it_lost_before_the_pause(
    network: Network, mailboxes: list[Datagrams]
) -> None:
    h2 = network.hosts[1]
    h2.blackhole("in")

    h2.pause()
    h2.resume()

    assert lost(mailboxes, end=h2.end_losses) == {"12", "32"}


def test_the_end_of_a_process_is_told_to_its_peer(network: Network) -> None:
    h1, h2, _ = network.hosts
    with Connection(h1, h2) as connection:
        connection.server.kill()
        connection.server.wait(10)

        assert connection.probe() == "ended"


def test_a_loss_of_power_is_told_to_nobody(network: Network) -> None:
    h1, h2, _ = network.hosts
    with Connection(h1, h2) as connection:
        h2.lose_power()

        assert connection.server.wait(10) == -signal.SIGKILL
        assert connection.probe() == "silent"


def test_a_host_boots_with_its_disk_and_address_but_without_its_memory(network: Network) -> None:
    h1, h2, _ = network.hosts
    paths = ["etc/kept", "tmp/lost", "run/lost", "dev/shm/lost"]
    for path in paths:
        (h2.root / path).write_text("")
    address = h2.address

    with Connection(h1, h2) as connection:
        h2.lose_power()
        network.boot(h2)
        answer = connection.probe()
    with Connection(h1, h2) as connection:
        new_answer = connection.probe()

    assert [path for path in paths if (h2.root / path).exists()] == ["etc/kept"]
    assert h2.address == address
    assert h2.pids() == []
    assert answer == "ended"
    assert new_answer == "acknowledged"


def test_a_frozen_and_slow_host_can_lose_power_and_boot(network: Network) -> None:
    h1, h2, _ = network.hosts
    h2.slow_down(delay_ms=100)
    h2.freeze()

    h2.lose_power()
    network.boot(h2)

    with Connection(h1, h2) as connection:
        assert connection.echo_s(1) < 0.2


def test_the_end_of_all_faults_leaves_none(network: Network) -> None:
    h1, h2, h3 = network.hosts
    h1.pull_cable()
    h1.slow_down(delay_ms=1)
    h2.lose_power()
    h3.pause()
    network.cut(h3, h1)
    network.readdress(h1, "10.77.0.99")

    network.end_faults()

    assert [host.address for host in network.hosts] == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]
    until(lambda: has_carrier(h1))
    for source, goal in ((h1, h2), (h2, h3), (h3, h1)):
        with Connection(source, goal) as connection:
            assert connection.probe() == "acknowledged"


@pytest.mark.parametrize("hierarchy", cgroups.hierarchies(), ids=str)
def test_a_group_freezes_and_thaws_in_both_versions_of_cgroups(
    hierarchy: Path, hosts_are_possible: None
) -> None:
    folder = hierarchy / f"launchpad-test-{os.getpid()}"
    folder.mkdir()
    group = cgroups.Group(folder)
    count = "import sys\nfor line in sys.stdin: print(line, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", count], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        group.add(process.pid)
        group.freeze()
        process.stdin.write(b"first\n")
        process.stdin.flush()
        answers, _, _ = select.select([process.stdout], [], [], 0.2)
        group.thaw()
        assert process.stdout.readline() == b"first\n"
        group.freeze()
        group.remove()

    assert answers == []
    assert process.returncode == -signal.SIGKILL
    assert not folder.exists()


# --- the network ---------------------------------------------------------------------------------


@pytest.mark.timing
def test_four_hosts_are_up_within_two_seconds_and_gone_within_half_a_second(
    hosts_are_possible: None,
) -> None:
    began = time.monotonic()
    network = Network(4)
    up = time.monotonic()
    network.close()
    down = time.monotonic()

    assert up - began <= 2
    assert down - up <= 0.5


class Traces(NamedTuple):
    """The parts of a network that could be left on the machine.

    Attributes:
        processes: The pid and the start of each, since another process may get the pid later.
    """

    processes: list[tuple[int, float]]
    cgroups: list[str]

    def left(self) -> list[str]:
        """Return those that are still there."""
        left = [group for group in self.cgroups if os.path.exists(group)]
        for pid, start in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.create_time() == start and runs(process):
                    left.append(str(process))
        links = Path("/sys/class/net").iterdir()
        left += [link.name for link in links if link.name in ("br0", "p1", "p2", "t2", "sink")]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return left + [mount for mount in mounts if "/run/h1" in mount or "/run/h2" in mount]


def traces(network: Network) -> Traces:
    """Return the traces of a network that is there."""
    own = os.readlink("/proc/self/ns/mnt")
    namespaces = {os.readlink(f"/proc/{host.pid}/ns/mnt") for host in network.hosts}
    namespaces.add(os.readlink(f"/proc/{network.pid}/ns/mnt"))
    groups = list(cgroups.hierarchies()[0].glob(f"launchpad-hosts-{network.pid}-*"))
    members = {pid for group in groups for pid in cgroups.Group(group).pids()}
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            namespace = os.readlink(f"/proc/{process.pid}/ns/mnt")
            if namespace in namespaces or process.pid in members:
                processes.append((process.pid, process.create_time()))
    assert own not in namespaces
    assert len(groups) == len(network.hosts)
    return Traces(processes, [str(group) for group in groups])


def make_busy(network: Network) -> list[HostProcess]:
    """Start processes on both hosts, freeze the first host, and slow the second one down."""
    h1, h2 = network.hosts
    processes = [host.popen(["sleep", "1000"]) for host in network.hosts]
    for host in network.hosts:
        host.run(["sh", "-c", "setsid sleep 1000 &"])
    until(lambda: len(h1.pids()) == len(h2.pids()) == 2)
    h2.slow_down(delay_ms=1)
    h1.freeze()
    return processes


def test_hosts_end_with_the_process_of_their_switch(hosts_are_possible: None) -> None:
    with Network(2) as network:
        parts = traces(network)
        assert len(parts.processes) >= 5

        os.kill(network.pid, signal.SIGKILL)

        try:
            until(lambda: set(parts.left()) <= set(parts.cgroups), within_s=10)
        finally:
            # Nobody else does it once the switch's process is gone.
            for group in parts.cgroups:
                cgroups.Group(Path(group)).remove()


def test_nothing_is_left_of_a_network_that_was_closed(hosts_are_possible: None) -> None:
    with Network(2) as network:
        processes = make_busy(network)
        parts = traces(network)
        assert set(parts.cgroups) < set(parts.left())

    assert [process.wait(10) for process in processes] == [-signal.SIGKILL] * 2
    assert parts.left() == []


_MAKER = """
import json, signal
from tests.hosts.network import Network
from tests.hosts.test_network import make_busy, traces

network = Network(2)
processes = make_busy(network)
print(json.dumps(traces(network)), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_network_whose_maker_was_killed(
    number: signal.Signals, hosts_are_possible: None
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _MAKER],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as maker:
        assert maker.stdout is not None
        parts = Traces(*json.loads(maker.stdout.readline()))
        assert set(parts.cgroups) < set(parts.left())

        maker.send_signal(number)

    until(lambda: not parts.left(), within_s=10)
