"""A network on whose hosts a user can log in over ssh, from any to any, by her key."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.hosts.host import Host
from tests.hosts.network import Network
from tests.hosts.users import add_user, path_on, write_own_file
from tests.waiting import until

USER = "alice"
HOME = Path("/home", USER)

_SSHD = Path("/usr/sbin/sshd")
_HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key")
_PID_FILE = Path("/run/sshd.pid")


def why_not() -> str:
    """Return why no sshd can be started, or "" if one can."""
    if not _SSHD.exists() or shutil.which("ssh") is None:
        return "there is no sshd: .ci/on_hosts installs Debian's openssh-server and openssh-client"
    return ""


class Sshd:
    """An sshd on each host of a network, and the user `alice`.

    Each host has a host key of its own, which the others know. Homes are on each host's own disk.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        with tempfile.TemporaryDirectory() as folder:
            self._user_key, self._user_public = _make_key(Path(folder, USER))
            keys = {host: _make_key(Path(folder, host.name)) for host in network.hosts}
        self._public_keys = {host: public for host, (_, public) in keys.items()}
        for host, (key, _) in keys.items():
            add_user(host, USER)
            file = path_on(host, _HOST_KEY)
            file.write_text(key)
            file.chmod(0o600)
            write_own_file(host, HOME / ".ssh/authorized_keys", self._user_public)
        self.restore()

    def restore(self) -> None:
        """Start the daemon where it doesn't run, and give the user her key and all host keys."""
        known_hosts = "".join(
            f"{host.name},{host.address} {public}" for host, public in self._public_keys.items()
        )
        for host in self._network.hosts:
            write_own_file(host, HOME / ".ssh/id_ed25519", self._user_key)
            write_own_file(host, HOME / ".ssh/known_hosts", known_hosts)
            if self.daemon(host) not in host.pids():
                self.start(host)

    def start(self, host: Host) -> None:
        """Start the daemon of a host, as a boot does. It listens when this returns."""
        (host.root / "run/sshd").mkdir(exist_ok=True)
        options = ["UsePAM=no", "PasswordAuthentication=no", f"PidFile={_PID_FILE}"]
        command = [str(_SSHD), "-h", str(_HOST_KEY), "-E", "/var/log/sshd.log"]
        path_on(host, _PID_FILE).unlink(missing_ok=True)
        host.run([*command, *[word for option in options for word in ("-o", option)]])
        until(path_on(host, _PID_FILE).exists)

    def daemon(self, host: Host) -> int:
        """Return the daemon's pid as it is outside of the host, or 0 if it doesn't run."""
        if not host.pid:
            return 0
        try:
            inner_pid = path_on(host, _PID_FILE).read_text().strip()
        except FileNotFoundError:
            return 0
        for pid in host.pids():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except FileNotFoundError:
                continue
            if f"\t{inner_pid}\n" in status.partition("NSpid:")[2].partition("\n")[0] + "\n":
                return pid
        return 0

    def forget_hosts(self, host: Host) -> None:
        """Make all host keys unknown to the user on this host, as when she first logs in from there."""
        write_own_file(host, HOME / ".ssh/known_hosts", "")

    def lose_key(self, host: Host) -> None:
        """Take her key from the user on this host, so that nobody lets her in from there."""
        path_on(host, HOME / ".ssh/id_ed25519").unlink()


def ssh(host: str, *command: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command line of an ssh that never asks: `h1.run(ssh("h2", "hostname"), user=USER)`."""
    return ["ssh", "-oBatchMode=yes", *options, host, *command]


def _make_key(file: Path) -> tuple[str, str]:
    """Return a new private key and its public key."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", file.name, "-f", str(file)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return file.read_text(), file.with_suffix(".pub").read_text()
