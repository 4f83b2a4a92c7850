"""A real Slurm on the hosts of a network: a controller on h1, and all hosts are nodes.

Its GPUs are null devices. Slurm assigns them and sets CUDA_VISIBLE_DEVICES; nothing can compute on them.
Slurm finds processes by /proc rather than by cgroups, so that it counts memory but limits none. There is no
accounting: `sacct` has no answers.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.hosts.host import Host
from tests.hosts.network import Network
from tests.hosts.users import UID, add_user
from tests.waiting import until

USER = "alice"

N_CPUS = 4
MEMORY_MB = 4000
N_GPUS = 2
"""What each node claims to have, whatever this machine has."""

ON_ALL_NODES = (
    "salloc",
    "--nodes=3",
    "--ntasks-per-node=1",
    f"--cpus-per-task={N_CPUS}",
    "--mem=0",
)
"""A command that runs another one, its further arguments, on this host within a job that has all nodes."""

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch")

# Times are as short as Slurm allows, so that tests are quick. Without DefMemPerCPU, a job would take all of a
# node's memory.
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={controller}
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=200
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=3600
RequeueExit=75
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={nodes} CPUs={cpus} RealMemory={memory} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=5 State=UP
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP
"""


def why_not() -> str:
    """Return why no Slurm can be started, or "" if one can."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"there is no {', '.join(missing)}: .ci/on_hosts installs Debian's Slurm and munge"
    return ""


class Slurm:
    """A cluster, and the user `alice`, whose home all hosts share.

    Args:
        shared: One of the folders that the network's hosts share. The user's home is made there.

    Attributes:
        home: The user's home, for a look at what her jobs have written.
    """

    def __init__(self, network: Network, shared: Path) -> None:
        self.home = shared / USER
        self._network = network
        self._controller = network.hosts[0]
        self._daemons: dict[Host, list[int]] = {}
        munge_key = secrets.token_bytes(1024)
        # Only root could enter a folder that pytest has made.
        shared.chmod(0o755)
        self.home.mkdir(mode=0o755, exist_ok=True)
        os.chown(self.home, UID, UID)
        for host in network.hosts:
            add_user(host, USER, self.home)
            self._configure(host, munge_key)
        self._start(network.hosts)

    def run(
        self,
        host: Host,
        command: Sequence[str],
        *,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command such as `sbatch` on a host, as the user, in her home."""
        return host.run(command, user=USER, timeout_s=timeout_s, check=check)

    def daemons(self, host: Host) -> list[int]:
        """Return the daemons of a host, by the pids that they have outside."""
        return sorted(set(self._daemons[host]).intersection(host.pids()))

    def restore(self) -> None:
        """Cancel all jobs, and start daemons that do not run. Return when all nodes are idle."""
        incomplete = [
            host
            for host in self._network.hosts
            if len(self.daemons(host)) < len(self._daemons[host])
        ]
        for host in incomplete:
            self._kill_all(host)
        self._start(incomplete)

    def down(self) -> None:
        """End the daemons and all jobs."""
        for host in self._network.hosts:
            self._kill_all(host)

    def _kill_all(self, host: Host) -> None:
        host.kill_all()
        until(lambda: not host.pids())

    def _configure(self, host: Host, munge_key: bytes) -> None:
        names = [each.name for each in self._network.hosts]
        configuration = _CONFIGURATION.format(
            controller=self._controller.name,
            nodes=",".join(names),
            cpus=N_CPUS,
            memory=MEMORY_MB,
            gpus=N_GPUS,
        )
        root = host.root
        for folder, owner in {
            "etc/slurm": "root",
            "etc/munge": "munge",
            "var/log/munge": "munge",
            "var/lib/munge": "munge",
            "var/spool/slurmctld": "slurm",
            "var/spool/slurmd": "root",
            "var/gpus": "root",
        }.items():
            (root / folder).mkdir(parents=True, exist_ok=True)
            _give_to(owner, root / folder)
        (root / "etc/slurm/slurm.conf").write_text(configuration)
        gpus = f"Name=gpu File=/var/gpus/gpu[0-{N_GPUS - 1}]\n"
        (root / "etc/slurm/gres.conf").write_text(gpus)
        for number in range(N_GPUS):
            os.mknod(root / f"var/gpus/gpu{number}", 0o020666, os.makedev(1, 3))
        key = root / "etc/munge/munge.key"
        key.write_bytes(munge_key)
        key.chmod(0o400)
        _give_to("munge", key)
        log = root / "var/log/slurmctld.log"
        log.touch()
        _give_to("slurm", log)

    def _start(self, hosts: Sequence[Host]) -> None:
        """Start the daemons of these hosts. Return when no job is left and all nodes are idle."""
        for host in hosts:
            self._start_daemons(host)
        until(self._cancel_all)
        self._wait_until_all_are_idle()
        for host in hosts:
            # A daemon forks helpers of its own. Now they are there, and nothing else is.
            self._daemons[host] = host.pids()

    def _start_daemons(self, host: Host) -> None:
        socket_folder = host.root / "run/munge"
        socket_folder.mkdir(mode=0o755, exist_ok=True)
        _give_to("munge", socket_folder)
        # Each returns when its daemon is ready, or has at least left its terminal.
        host.run(["/usr/sbin/munged"], user="munge")
        if host is self._controller:
            host.run(["slurmctld"])
        host.run(["slurmd"])

    def _cancel_all(self) -> bool:
        """Cancel all jobs, and return True if none is left."""
        states = "--state=PENDING,RUNNING,SUSPENDED,COMPLETING"
        jobs = self._controller.run(["squeue", "--noheader", states, "--format=%A"]).stdout.split()
        if jobs:
            self._controller.run(["scancel", "--quiet", *jobs], check=False)
        return not jobs

    def _wait_until_all_are_idle(self) -> None:
        list_idle = ["sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N"]
        n_hosts = len(self._network.hosts)

        def are_idle() -> bool:
            done = self._controller.run(list_idle, check=False)
            return len(set(done.stdout.split())) == n_hosts

        _until(are_idle, self._report)

    def _report(self) -> str:
        """Return why nodes may not be idle."""
        reasons = self._controller.run(["sinfo", "-R"], check=False)
        logs = ["sh", "-c", "tail -n 5 /var/log/slurm*.log"]
        ends = [f"{host}:\n{host.run(logs).stdout}" for host in self._network.hosts]
        return "\n".join([reasons.stdout, reasons.stderr, *ends])


def _until(condition: Callable[[], bool], report: Callable[[], str]) -> None:
    try:
        until(condition)
    except AssertionError as error:
        raise AssertionError(f"Slurm's nodes are not idle: {report()}") from error


def _give_to(user: str, path: Path) -> None:
    entry = pwd.getpwnam(user)
    os.chown(path, entry.pw_uid, entry.pw_gid)
