"""Other hosts on this machine, for tests of networks that fail."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest


class FarHost:
    """Another host, in a network namespace of its own, at the other end of a cable.

    One program runs there. It reads a line, where to listen, and prints one: where it does.
    """

    def __init__(self, source: str) -> None:
        self.process = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-c", source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # Neither may be another test's, which may be running just now.
        own = self.process.pid
        self._near = f"lpn{own}"
        self._far = f"lpf{own}"
        first = own % (1 << 15) * 4  # four addresses each, in the range meant for tests
        net = f"198.{18 + (first >> 16)}.{first >> 8 & 255}"
        self.near_ip = f"{net}.{(first & 255) + 1}"
        self._far_ip = f"{net}.{(first & 255) + 2}"

    def connect_cable(self, scheme: str) -> str:
        """Connect the host, and return the address at which its program listens."""
        self._await_namespace()
        near = self._near
        far = self._far
        run_ip(f"link add {near} type veth peer name {far} netns {self.process.pid}")
        run_ip(f"addr add {self.near_ip}/30 dev {near}")
        run_ip(f"link set {near} up")
        self._run_there(f"ip addr add {self._far_ip}/30 dev {far}")
        self._run_there(f"ip link set {far} up")
        return self.ask(f"{scheme}:{self._far_ip}:0")

    def ask(self, line: str) -> str:
        """Send the program a line. Return the next line that it prints."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def vanish(self) -> None:
        """Lose everything that is sent to the host from now on. Nothing comes back."""
        self._run_there(f"ip addr del {self._far_ip}/30 dev {self._far}")

    def come_back(self) -> None:
        """Let packets to the host arrive again."""
        self._run_there(f"ip addr add {self._far_ip}/30 dev {self._far}")

    def close(self) -> None:
        """End the host. Remove the cable first: the namespace goes with its process, but not at once."""
        subprocess.run(["ip", "link", "del", self._near], capture_output=True, check=False)
        self.process.kill()
        self.process.communicate()

    def _await_namespace(self) -> None:
        ours = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + 10
        while os.readlink(f"/proc/{self.process.pid}/ns/net") == ours:
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _run_there(self, command: str) -> None:
        prefix = ["nsenter", "--net", f"--target={self.process.pid}"]
        subprocess.run([*prefix, *command.split()], check=True)


def run_ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)


def why_no_namespaces() -> str:
    missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if sys.platform != "linux" or os.geteuid() != 0 or missing:
        return f"network namespaces need Linux, root and the tools (missing: {missing})"
    name = f"lp{os.getpid() % 100_000}t"
    probe = f"ip link add {name} type veth && ip link del {name}"
    result = subprocess.run(
        ["unshare", "--net", "sh", "-c", probe], capture_output=True, text=True, check=False
    )
    return f"no network namespaces here: {result.stderr}" if result.returncode else ""


@contextlib.contextmanager
def start(source: str) -> Iterator[FarHost]:
    """A host that runs `source`. The test is skipped where there are no network namespaces."""
    reason = why_no_namespaces()
    if reason:
        pytest.skip(reason)
    host = FarHost(source)
    try:
        yield host
    finally:
        host.close()
