"""A host of a network: what runs there, and the faults that it can have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from tests.hosts.cable import Cable
from tests.hosts.cgroups import Group
from tests.hosts.host_process import HostProcess
from tests.hosts.relay import Slowness
from tests.hosts.switch import ROOT, Switch
from tests.hosts.switch_process import SINK

Direction = Literal["in", "out", "both"]

_Stream = int | IO[str] | IO[bytes] | None

# Each process of a host is a member of its cgroup, and so is the one outside that waits for it.
_JOIN = 'echo $$ >"$0" && exec "$@"'
_GO_HOME = 'cd 2>/dev/null; exec "$@"'


class CommandFailedError(Exception):
    """A command on a host ended with another status than 0."""


@dataclass(frozen=True)
class _Loss:
    """Frames that the switch loses at a host's port: coming "in" from it, or going "out" to it.

    Attributes:
        side: The name that `tc` has for it: "ingress" for frames that come from the host.
        to: The address of the network card that they go to; "" if all frames are lost.
        is_pause: True if it belongs to a pause, and ends with that.
    """

    side: Literal["ingress", "egress"]
    to: str = ""
    is_pause: bool = False

    def command(self, port: str) -> str:
        match = f"protocol ip u32 match ether dst {self.to}" if self.to else "u32 match u32 0 0"
        sink = f"action mirred egress redirect dev {SINK}"
        return f"filter add dev {port} {self.side} {match} {sink}\n"


class Host:
    """A host. `Network` makes it and boots it.

    Attributes:
        name: `h1` and so on. All hosts know it.
        address: The host's IP address.
        pid: Its process 1, or 0 without power.
    """

    def __init__(self, switch: Switch, cable: Cable) -> None:
        self.name = cable.host
        self.address = cable.address
        self.cable = cable
        self.pid = 0
        self._switch = switch
        self._group: Group | None = None
        self._losses: set[_Loss] = set()
        self._is_slow = False

    def __repr__(self) -> str:
        return f"<host {self.name}, {self.address}>"

    # --- what runs there

    @property
    def root(self) -> Path:
        """The host's file system, to be read and written from outside."""
        assert self.pid, f"{self.name} has no power"
        return Path(f"/proc/{self.pid}/root")

    @property
    def clock_ahead_s(self) -> float:
        """The seconds by which `time.monotonic()` on the host is ahead of this process's."""
        return _clock_offset_s(self.pid) - _clock_offset_s(os.getpid())

    def popen(
        self,
        command: Sequence[str],
        *,
        user: str = "",
        env: Mapping[str, str] | None = None,
        stdin: _Stream = subprocess.DEVNULL,
        stdout: _Stream = None,
        stderr: _Stream = None,
    ) -> HostProcess:
        """Start a command on the host, in the home directory of its user.

        Args:
            user: A user of the host; root if this is empty.
            env: Variables besides those that a login sets. PYTHONPATH is that of this checkout.
        """
        assert self._group is not None, f"{self.name} has no power"
        become = ["setpriv", "--pdeathsig=KILL", "--reset-env"]
        if user:
            become += [f"--reuid={user}", f"--regid={user}", "--init-groups"]
        variables = {"PYTHONPATH": str(ROOT), **(env or {})}
        namespaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--time", "--wdns=/"]
        join = ["sh", "-c", _JOIN, str(self._group.members)]
        go_home = ["sh", "-c", _GO_HOME, "sh"]
        return HostProcess(
            [
                *join,
                *["nsenter", f"--target={self.pid}", *namespaces, "--"],
                *[*become, "--", "env"],
                *[f"{name}={value}" for name, value in variables.items()],
                *go_home,
                *command,
            ],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
        )

    def run(
        self,
        command: Sequence[str],
        *,
        user: str = "",
        env: Mapping[str, str] | None = None,
        input_text: str = "",
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, and return what it wrote. Daemons that it started may go on.

        Raises:
            CommandFailedError: It ended with another status than 0. `check=False` prevents this.
            subprocess.TimeoutExpired: It took longer than `timeout_s`, and was killed.
        """
        # Files rather than pipes: a daemon keeps a pipe open, and its reader would wait for the daemon's end.
        with (
            tempfile.TemporaryFile("w+") as stdin,
            tempfile.TemporaryFile("w+", errors="replace") as stdout,
            tempfile.TemporaryFile("w+", errors="replace") as stderr,
        ):
            stdin.write(input_text)
            stdin.seek(0)
            with self.popen(
                command, user=user, env=env, stdin=stdin, stdout=stdout, stderr=stderr
            ) as process:
                status = process.wait(timeout_s)
            stdout.seek(0)
            stderr.seek(0)
            done = subprocess.CompletedProcess(list(command), status, stdout.read(), stderr.read())
        if check and status:
            raise CommandFailedError(
                f"on {self.name}, {' '.join(command)} ended with {status}: {done.stderr or done.stdout}"
            )
        return done

    def python(
        self,
        source: str,
        *arguments: str,
        user: str = "",
        env: Mapping[str, str] | None = None,
        stdin: _Stream = subprocess.DEVNULL,
        stdout: _Stream = subprocess.PIPE,
        stderr: _Stream = None,
    ) -> HostProcess:
        """Start a Python program, given as text, with this interpreter."""
        return self.popen(
            [sys.executable, "-uc", source, *arguments],
            user=user,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )

    def pids(self) -> list[int]:
        """Return all processes of the host except its process 1, by the pids that they have outside."""
        if self._group is None:
            return []
        pids = []
        own = os.readlink(f"/proc/{self.pid}/ns/pid")
        for pid in self._group.pids():
            try:
                is_there = os.readlink(f"/proc/{pid}/ns/pid") == own
            except OSError:
                continue
            if is_there and pid != self.pid:
                pids.append(pid)
        return pids

    def kill_all(self, keep: Collection[int] = ()) -> None:
        """Kill all processes of the host, except its process 1 and those with these pids."""
        for pid in set(self.pids()) - set(keep):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    # --- the cable

    def pull_cable(self) -> None:
        """Unplug the host: its network card and the switch notice that there is no carrier."""
        self._switch.ip(f"link set {self.cable.port} down\n")

    def plug_in(self) -> None:
        """End `pull_cable`."""
        self._switch.ip(f"link set {self.cable.port} up\n")

    def blackhole(self, direction: Direction = "both") -> None:
        """Lose all frames that go to the host ("in"), come from it ("out"), or both. The carrier stays."""
        self._lose(*_all_frames(direction))

    def lose_frames_to(self, other: Host) -> None:
        """Lose what this host sends to another one; `Network.cut` is for both ways."""
        self._lose(_Loss("ingress", to=other.cable.mac))

    def end_losses(self) -> None:
        """End `blackhole` and `lose_frames_to`."""
        self._losses = {loss for loss in self._losses if loss.is_pause}
        self._apply_losses()

    def slow_down(
        self,
        delay_ms: float = 0.0,
        *,
        jitter_ms: float = 0.0,
        loss: float = 0.0,
        mbit: float = 0.0,
    ) -> None:
        """Delay each frame from and to the host, lose some, or limit the rate. Connections stay.

        Args:
            loss: The share of the frames that are lost, from 0 to 1.
            mbit: Megabits a second, each way; 0 for no limit.
        """
        self._switch.slow_down(self.cable, Slowness(delay_ms, jitter_ms, loss, mbit))
        self._is_slow = True
        self._apply_losses()

    def speed_up(self) -> None:
        """End `slow_down`. Frames that are on their way are lost."""
        self._switch.speed_up(self.cable)
        self._is_slow = False
        self._apply_losses()

    def move_to(self, address: str) -> None:
        """Change the host's address. `Network.readdress` also tells the other hosts."""
        self.run(["ip", "address", "flush", "dev", "eth0"])
        self.run(["ip", "address", "add", f"{address}/24", "broadcast", "+", "dev", "eth0"])
        self.address = address

    # --- the machine

    def freeze(self) -> None:
        """Stop all processes. The host's kernel goes on: it acknowledges what arrives."""
        assert self._group is not None, f"{self.name} has no power"
        self._group.freeze()

    def thaw(self) -> None:
        """End `freeze`."""
        assert self._group is not None, f"{self.name} has no power"
        self._group.thaw()

    def pause(self) -> None:
        """Pause the host like a hypervisor: neither processes nor the kernel answer. Clocks go on."""
        self._lose(*_all_frames("both", is_pause=True))
        self.freeze()

    def resume(self) -> None:
        """End `pause`."""
        self.thaw()
        self._losses = {loss for loss in self._losses if not loss.is_pause}
        self._apply_losses()

    def lose_power(self) -> None:
        """End everything on the host at once. Nobody gets a FIN or RST from it."""
        self._switch.lose_power(self.cable)
        self.pid = 0
        self._group = None
        self._losses = set()
        self._is_slow = False

    def booted(self, pid: int, group: Group) -> None:
        """Take note of a boot; `Network.boot` does it."""
        self.pid = pid
        self._group = group

    def end_faults(self) -> None:
        """Thaw the host, plug it in, and end losses and slowness. It must have power."""
        self._losses = set()
        if self._is_slow:
            self.speed_up()
        self._apply_losses()
        self.plug_in()
        self.thaw()

    def _lose(self, *losses: _Loss) -> None:
        self._losses.update(losses)
        self._apply_losses()

    def _apply_losses(self) -> None:
        # Those of the relay's port if there is one, since a relay reads frames before its cable's filters do.
        ports = [self.cable.port, self.cable.tap] if self._is_slow else [self.cable.port]
        flush = [
            f"filter del dev {port} {side}\n" for port in ports for side in ("ingress", "egress")
        ]
        losses = [loss.command(ports[-1]) for loss in self._losses]
        self._switch.tc("".join([*flush, *losses]))


def _all_frames(direction: Direction, is_pause: bool = False) -> list[_Loss]:
    losses = []
    if direction in ("in", "both"):
        losses.append(_Loss("egress", is_pause=is_pause))
    if direction in ("out", "both"):
        losses.append(_Loss("ingress", is_pause=is_pause))
    return losses


def _clock_offset_s(pid: int) -> float:
    for line in Path(f"/proc/{pid}/timens_offsets").read_text().splitlines():
        clock, seconds, nanoseconds = line.split()
        if clock == "monotonic":
            return int(seconds) + int(nanoseconds) / 1e9
    raise LookupError(f"the kernel doesn't say by how much the clock of process {pid} is ahead")
