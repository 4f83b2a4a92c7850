"""The process that has the switch, and ends the hosts.

`switch.py` starts it: `python -m tests.hosts.switch_process CONTROL MAKER [SHARED…]`. It runs in a network
namespace with a bridge, and in a mount namespace with the hosts' disks. It does what `switch.py` asks for on
CONTROL, in one line of JSON for each request and each answer. When CONTROL is closed, or when the process
MAKER ends in whatever way, it kills all that runs on the hosts, removes their cgroups, and ends. The kernel
then removes the namespaces with all links and mounts in them.

It leaves the process that started it, so that a host that a test boots isn't a process that the test has
left behind.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.hosts import mounts
from tests.hosts.cable import Cable
from tests.hosts.cgroups import Group

DISKS = Path("/run")
"""The hosts' disks are here, on a tmpfs that only this process and the hosts' processes 1 can see."""

SINK = "sink"
"""An interface that is down. Frames that are sent to it are lost, also in kernels that have no other way."""

_PYTHON = [sys.executable, "-ES", "-m"]
_ENDS_WITH_PARENT = ["setpriv", "--pdeathsig=KILL", "--"]
_CLOCK_STEP_S = 1000
_LIMIT_S = 20.0


class SwitchError(Exception):
    """A request could not be fulfilled."""


@dataclass
class RunningHost:
    """A host that has power.

    Attributes:
        starter: The process `unshare`, whose only child is the host's process 1. It ends after the host.
        pid: The host's process 1.
    """

    starter: subprocess.Popen[bytes]
    pid: int
    group: Group


class SwitchProcess:
    """The state of the process, and the requests."""

    def __init__(self, shared: Sequence[str]) -> None:
        self._shared = shared
        self._hosts: dict[Cable, RunningHost] = {}
        self._relays: dict[Cable, subprocess.Popen[bytes]] = {}
        mounts.mount("tmpfs", str(DISKS), "mode=755")
        call(
            ["ip", "-batch", "-"],
            "link set lo up\n"
            "link add br0 type bridge forward_delay 0 stp_state 0\n"
            f"link add {SINK} type veth peer name {SINK}-end\n"
            "link set br0 up\n",
        )
        # Where the machine has iptables loaded, bridged frames would pass through its rules.
        iptables = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
        if iptables.exists():
            iptables.write_text("0")

    def answer(self, request: Sequence[Any]) -> dict[str, Any]:
        """Do what is asked, and return the answer."""
        match request:
            case ["call", list(command), str(text)]:
                return {"output": call(command, text)}
            case ["boot", dict(addresses)]:
                return self.boot({Cable(int(number)): addresses[number] for number in addresses})
            case ["lose_power", int(number)]:
                return self.lose_power(Cable(number))
            case ["slow_down", int(number), list(slowness)]:
                return self.slow_down(Cable(number), slowness)
            case ["speed_up", int(number)]:
                return self.speed_up(Cable(number))
        raise SwitchError(f"there is no request {request}")

    def boot(self, addresses: Mapping[Cable, str]) -> dict[str, Any]:
        """Start hosts at the same time, and connect them. Return the pid and the cgroup of each."""
        starting = [(cable, *self._start(cable)) for cable in addresses]
        for cable, starter, ready in starting:
            with os.fdopen(ready) as lines:
                line = lines.readline().strip()
            if not line.isdigit():
                starter.kill()
                starter.wait()
                raise SwitchError(f"{cable.host} did not boot: {line or 'its process 1 ended'}")
            group = Group.create(f"launchpad-hosts-{os.getpid()}-{cable.host}")
            self._hosts[cable] = RunningHost(starter, int(line), group)
            group.add(int(line))

        links = [
            f"link add {cable.port} type veth"
            f" peer name eth0 address {cable.mac} netns {self._hosts[cable].pid}\n"
            f"link set {cable.port} master br0 up\n"
            for cable in addresses
        ]
        call(["ip", "-batch", "-"], "".join(links))
        call(
            ["tc", "-batch", "-"],
            "".join(f"qdisc add dev {cable.port} clsact\n" for cable in addresses),
        )
        for cable, address in addresses.items():
            call(
                ["nsenter", f"--target={self._hosts[cable].pid}", "--net", "ip", "-batch", "-"],
                "link set lo up\n"
                f"address add {address}/24 broadcast + dev eth0\n"
                "link set eth0 up\n",
            )
        hosts = {cable.number: self._hosts[cable] for cable in addresses}
        return {str(n): [host.pid, str(host.group.folder)] for n, host in hosts.items()}

    def lose_power(self, cable: Cable) -> dict[str, Any]:
        """End a host without a packet from it. Its disk remains."""
        host = self._hosts.pop(cable)
        # So that no process notices that the cable goes.
        host.group.freeze()
        # Before the processes are killed, since the kernel sends FIN or RST for them then.
        call(["ip", "link", "del", cable.port])
        self._stop_relay(cable)
        self._end(host)
        return {}

    def slow_down(self, cable: Cable, slowness: Sequence[float]) -> dict[str, Any]:
        """Put a relay between the cable and the switch."""
        self.speed_up(cable)
        self._set_offloads(cable, "off")
        call(["ip", "link", "set", cable.port, "nomaster"])
        relay = subprocess.Popen(
            [
                *_ENDS_WITH_PARENT,
                *_PYTHON,
                "tests.hosts.relay",
                cable.port,
                cable.tap,
                *map(str, slowness),
            ],
            stdout=subprocess.PIPE,
        )
        self._relays[cable] = relay
        assert relay.stdout is not None
        with relay.stdout:
            if relay.stdout.readline() != b"ready\n":
                raise SwitchError(f"the relay of {cable.host} did not start")
        call(["ip", "link", "set", cable.tap, "master", "br0", "up"])
        call(["tc", "qdisc", "add", "dev", cable.tap, "clsact"])
        return {}

    def speed_up(self, cable: Cable) -> dict[str, Any]:
        """Remove the relay, if there is one."""
        if self._stop_relay(cable):
            call(["ip", "link", "set", cable.port, "master", "br0"])
            self._set_offloads(cable, "on")
        return {}

    def close(self) -> None:
        """End all that runs on the hosts, and remove the cgroups."""
        for cable in list(self._relays):
            self._stop_relay(cable)
        for host in self._hosts.values():
            self._end(host)

    def _start(self, cable: Cable) -> tuple[subprocess.Popen[bytes], int]:
        """Start a host's process 1. Return `unshare`, and the descriptor on which the process reports."""
        readable, writable = os.pipe()
        namespaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--time"]
        # Those of machines differ, too: they count from the boot.
        clocks = [
            f"--{clock}={_CLOCK_STEP_S * cable.number}" for clock in ("monotonic", "boottime")
        ]
        unshare = ["unshare", *namespaces, *clocks, "--fork", "--kill-child"]
        arguments = [cable.host, str(DISKS / cable.host), str(writable), *self._shared]
        starter = subprocess.Popen(
            [*_ENDS_WITH_PARENT, *unshare, *_PYTHON, "tests.hosts.init", *arguments],
            pass_fds=[writable],
            start_new_session=True,
        )
        os.close(writable)
        return starter, readable

    def _end(self, host: RunningHost) -> None:
        # With its process 1 the kernel ends all that runs in a pid namespace.
        os.kill(host.pid, signal.SIGKILL)
        # In version 1 of cgroups a frozen process doesn't die.
        host.group.thaw()
        host.starter.wait()
        # What is left are the processes outside that waited for commands in the host.
        host.group.remove()

    def _stop_relay(self, cable: Cable) -> bool:
        """Remove the relay of a cable. Return True if there was one."""
        relay = self._relays.pop(cable, None)
        if relay is None:
            return False
        relay.kill()
        relay.wait()
        return True

    def _set_offloads(self, cable: Cable, value: str) -> None:
        host = self._hosts[cable]
        enter = ["nsenter", f"--target={host.pid}", "--net"]
        call([*enter, *_PYTHON, "tests.hosts.offloads", "eth0", value])


def call(command: Sequence[str], text: str = "") -> str:
    """Run a command with this input, and return what it prints."""
    done = subprocess.run(
        command,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SwitchError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{text}")
    return done.stdout


def serve(process: SwitchProcess, control: socket.socket, maker: int) -> None:
    """Answer requests until the other end closes `control`, or the process of the descriptor `maker` ends."""
    with control.makefile("rw") as lines:
        while True:
            readable, _, _ = select.select([control.fileno(), maker], [], [])
            if maker in readable:
                return
            line = lines.readline()
            if not line:
                return
            number, *request = json.loads(line)
            answer: dict[str, Any] = {"number": number}
            try:
                answer["result"] = process.answer(request)
            except Exception as error:
                answer["error"] = str(error)
            lines.write(f"{json.dumps(answer)}\n")
            lines.flush()


def main(control: socket.socket, maker_pid: int, shared: Sequence[str]) -> NoReturn:
    """Make the switch, then go on as a process that has left its parent."""
    maker = os.pidfd_open(maker_pid)
    process = SwitchProcess(shared)
    if os.fork():
        os._exit(0)
    # Whoever waits for the end of what the maker prints must not wait for this process.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    try:
        control.sendall(f"{json.dumps({'pid': os.getpid()})}\n".encode())
        serve(process, control, maker)
    except OSError:
        # The maker ended while it was being answered.
        pass
    finally:
        process.close()
        os._exit(0)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3:])
