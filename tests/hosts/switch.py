"""The switch that the hosts are connected to, as the process that makes the network sees it."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from tests.hosts.cable import Cable
from tests.hosts.cgroups import Group
from tests.hosts.relay import Slowness

ROOT = Path(__file__).parents[2]

_LIMIT_S = 30.0
_HAS_ENDED = "the switch's process has ended, and with it all hosts of this network"


class Switch:
    """A switch and the hosts' disks, in a process of its own: `switch_process.py`.

    Thread-safe. The process ends with this one, however this one ends.
    """

    def __init__(self, shared: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._n_requests = 0
        ours, theirs = socket.socketpair()
        with theirs:
            started = subprocess.run(
                [
                    "unshare",
                    "--net",
                    "--mount",
                    "--propagation=private",
                    sys.executable,
                    "-ESm",
                    "tests.hosts.switch_process",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    *shared,
                ],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
                timeout=60,
                check=False,
            )
        self._control = ours
        self._answers = ours.makefile()
        if started.returncode:
            self._close_control()
            raise RuntimeError(f"the switch did not start: {started.stdout}")
        self.pid = int(self._read()["pid"])
        self._process = os.pidfd_open(self.pid)

    def boot(self, addresses: Mapping[Cable, str]) -> dict[Cable, tuple[int, Group]]:
        """Start hosts. Return the pid of each host's process 1, and its cgroup."""
        hosts = self._ask("boot", {cable.number: addresses[cable] for cable in addresses})
        return {
            Cable(int(number)): (pid, Group(Path(folder)))
            for number, (pid, folder) in hosts.items()
        }

    def lose_power(self, cable: Cable) -> None:
        """End a host without a packet from it."""
        self._ask("lose_power", cable.number)

    def slow_down(self, cable: Cable, slowness: Slowness) -> None:
        """Put a relay between a cable and the switch."""
        self._ask("slow_down", cable.number, astuple(slowness))

    def speed_up(self, cable: Cable) -> None:
        """Remove the relay of a cable."""
        self._ask("speed_up", cable.number)

    def ip(self, commands: str) -> None:
        """Run commands of `ip`, one a line, in the switch's network namespace."""
        self._ask("call", ["ip", "-batch", "-"], commands)

    def tc(self, commands: str) -> None:
        """Run commands of `tc`, one a line, in the switch's network namespace."""
        self._ask("call", ["tc", "-batch", "-"], commands)

    def close(self) -> None:
        """End all hosts and the switch. Return when nothing of them is left."""
        with self._lock:
            if self._answers.closed:
                return
            self._close_control()
            # Without its control the process removes everything and ends. It isn't a child of this one.
            ended, _, _ = select.select([self._process], [], [], _LIMIT_S)
            os.close(self._process)
            if not ended:
                raise TimeoutError(
                    f"the switch's process {self.pid} did not end within {_LIMIT_S:g} s"
                )

    def _ask(self, *request: Any) -> dict[str, Any]:
        with self._lock:
            self._n_requests += 1
            number = self._n_requests
            try:
                self._control.sendall(f"{json.dumps([number, *request])}\n".encode())
            except OSError as error:
                raise RuntimeError(f"no {request[0]}: {_HAS_ENDED}") from error
            answer = self._read()
            # An exception, such as that of a test's time limit, may have interrupted an earlier request.
            while answer["number"] != number:
                answer = self._read()
        if "error" in answer:
            raise RuntimeError(f"the switch refused {request[0]}: {answer['error']}")
        return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise RuntimeError(_HAS_ENDED)
        return dict(json.loads(line))

    def _close_control(self) -> None:
        # A fork of this process may have the socket open, too.
        self._control.shutdown(socket.SHUT_RDWR)
        self._answers.close()
        self._control.close()
