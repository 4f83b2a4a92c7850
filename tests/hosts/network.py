"""A network of hosts on this machine, for tests of what one machine alone never does.

    with Network(3) as network:
        h1, h2, h3 = network.hosts
        h1.run(["hostname"])
        server = h2.popen(["python3", "-m", "http.server"])
        h2.pull_cable()                      # and h2.plug_in()
        h2.blackhole("in")                   # or "out", or "both"; h2.end_losses()
        network.cut(h1, h2)                  # also one_way=True; network.end_losses()
        h2.slow_down(delay_ms=20, loss=0.01) # also mbit=10; h2.speed_up()
        h2.freeze()                          # its kernel still acknowledges; h2.thaw()
        h2.pause()                           # its kernel doesn't; h2.resume()
        h2.lose_power()                      # no FIN, no RST; network.boot(h2)
        network.readdress(h2, "10.77.0.99")  # all hosts know the name's new address
        network.end_faults()                 # all of them

How the hosts are made:

    switch    a network namespace with a bridge, and a mount namespace with a tmpfs for the hosts' disks
    host      network, UTS, mount, PID, IPC and time namespaces. Its root is an overlay: below are this
              machine's files, so it has the same interpreter and checkout; above is what the host itself
              has written. Only the folders `shared` are common to all. /proc, /sys, /tmp, /run and
              /dev/shm are its own. A cgroup holds all that was started in it.

No route leads out of the switch. Nothing is changed in the machine's own namespaces, except that there is one
cgroup for each host. All of it ends with the process that made it, however that ends.

One kernel can't do everything: the hosts have one wall clock and one kernel log. If a process is killed, its
kernel sends FIN or RST, and a host that lost its power does not: so these two differ in what a peer notices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType

from tests.hosts.cable import MAX_HOSTS, Cable
from tests.hosts.host import Host
from tests.hosts.switch import Switch
from tests.hosts.switch_process import DISKS


class Network:
    """`n` hosts, called h1, h2 and so on, at one switch.

    Args:
        shared: Folders of this machine that all hosts share with it, as machines share network storage.
    """

    def __init__(self, n: int, *, shared: Sequence[Path] = ()) -> None:
        if not 1 <= n <= MAX_HOSTS:
            raise ValueError(f"a network has 1 to {MAX_HOSTS} hosts, and not {n}")
        folders = [folder.resolve() for folder in shared]
        for folder in folders:
            if folder.is_relative_to(DISKS):
                raise ValueError(f"{folder} cannot be shared: the hosts' disks are in {DISKS}")
        self._switch = Switch([str(folder) for folder in folders])
        self.hosts = [Host(self._switch, Cable(number)) for number in range(1, n + 1)]
        try:
            self.boot(*self.hosts)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process that has the switch."""
        return self._switch.pid

    def boot(self, *hosts: Host) -> None:
        """Start hosts that have no power. Disk and address are kept; /tmp, /run and /dev/shm are empty."""
        booted = self._switch.boot({host.cable: host.address for host in hosts})
        for host in hosts:
            host.booted(*booted[host.cable])
        self._write_names()

    def cut(self, a: Host, b: Host, *, one_way: bool = False) -> None:
        """Lose what `a` sends to `b`, and, unless `one_way`, what `b` sends to `a`."""
        a.lose_frames_to(b)
        if not one_way:
            b.lose_frames_to(a)

    def end_losses(self) -> None:
        """End all cuts, and `blackhole` on all hosts."""
        for host in self.hosts:
            host.end_losses()

    def readdress(self, host: Host, address: str) -> None:
        """Change a host's address. Connections to the old one become silent; names lead to the new one."""
        host.move_to(address)
        self._write_names()

    def end_faults(self) -> None:
        """End all faults, boot the hosts that have no power, and give all their first addresses."""
        dark = [host for host in self.hosts if not host.pid]
        for host in self.hosts:
            if host in dark:
                host.address = host.cable.address
            else:
                host.end_faults()
                if host.address != host.cable.address:
                    self.readdress(host, host.cable.address)
        if dark:
            self.boot(*dark)

    def kill_all(self, keep: Collection[int] = ()) -> None:
        """Kill all processes of all hosts, except those with these pids."""
        for host in self.hosts:
            host.kill_all(keep)

    def close(self) -> None:
        """End all hosts. Nothing of them is left when this returns."""
        self._switch.close()

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _write_names(self) -> None:
        names = "".join(f"{host.address} {host.name}\n" for host in self.hosts)
        for host in self.hosts:
            if host.pid:
                (host.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{names}")
