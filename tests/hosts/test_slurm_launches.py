"""Launches on a real Slurm: jobs that launchpad submits, and jobs in which the script runs."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.host_process import HostProcess
from tests.hosts.network import Network
from tests.hosts.slurm import USER, Slurm
from tests.waiting import until

ENDED_WITHIN_S = 10.0

WORKERS = """
import os
import signal
import socket
import sys
import time
import launchpad as lp

def work(judge):
    me = lp.current()
    if "daemon" in sys.argv and os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pause()
    signal.signal(signal.SIGUSR1, lambda *_: print("notices SIGUSR1", flush=True))
    step = me.load(default=0)
    place = [me.name, me.attempt, step, socket.gethostname(), os.environ["CUDA_VISIBLE_DEVICES"]]
    print("begins", *place, flush=True)
    with open(judge, "a") as file:
        while not lp.wait_for_stop(0.05):
            step += 1
            print(me.name, me.attempt, time.time(), file=file, flush=True)
    me.save(step)
    print("ends in order", flush=True)

def main(n_workers, gpus, **options):
    program = lp.Program("work")
    resources = lp.Resources(cpus=1, gpus=gpus, placement="spread")
    with program.group("worker", resources=resources, restart=lp.RestartPolicy()):
        for _ in range(n_workers):
            program.add_node(lp.PyNode(work, os.path.abspath("judge")))
    lp.launch(program, "slurm", state="state", **options)
"""

GREETINGS = """
import socket
import launchpad as lp

class Greeter:
    def greet(self, name):
        return f"hello {name}, here is {socket.gethostname()}"

def guest(greeters):
    for greeter in greeters:
        print(greeter.greet(socket.gethostname()))

if __name__ == "__main__":
    program = lp.Program("greetings")
    with program.group("greeter", resources=lp.Resources(placement="strict_spread")):
        greeters = [program.add_node(lp.CourierNode(Greeter)) for _ in range(3)]
    with program.group("guest", resources=lp.Resources(placement="strict_spread")):
        for _ in range(3):
            program.add_node(lp.PyNode(guest, greeters))
    lp.run(program, "slurm", nodes=3, timeout_s=60)
"""


SWEEP = """
import os
import socket
import launchpad as lp

def train(seed):
    print("begins", seed, os.environ["SLURM_JOB_ID"], socket.gethostname(), flush=True)
    lp.wait_for_stop()
    print("ends", seed, flush=True)

if __name__ == "__main__":
    seed = os.environ["SLURM_ARRAY_TASK_ID"]
    print("launches", seed, os.environ["SLURM_JOB_ID"], flush=True)
    program = lp.Program("sweep")
    with program.group("trainer", resources=lp.Resources(placement="strict_spread")):
        for _ in range(2):
            program.add_node(lp.PyNode(train, seed))
    lp.launch(program, "slurm")
"""


class Launcher:
    """The user on h1, who launches programs from her home, which all hosts share."""

    def __init__(self, network: Network, slurm: Slurm) -> None:
        self.network = network
        self.slurm = slurm
        self.host = network.hosts[0]
        self.output = slurm.home / "output"
        self.output.unlink(missing_ok=True)
        self.judge = slurm.home / "judge"
        self.judge.unlink(missing_ok=True)
        shutil.rmtree(slurm.home / "state", ignore_errors=True)

    def start(self, script: str, *arguments: str) -> HostProcess:
        """Start a script, whose output goes to a file."""
        file = self._write(script)
        with self.output.open("w") as output:
            return self.host.popen(
                [sys.executable, "-u", file, *arguments],
                user=USER,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def submit(self, script: str, *options: str) -> str:
        """Submit a job whose batch script is a script, and return the job's number."""
        file = self._write(script)
        wrapped = f"--wrap=exec {sys.executable} -u {file}"
        output = f"--output={self.output}"
        command = ["sbatch", "--parsable", output, *options, wrapped]
        return self.slurm.run(self.host, command).stdout.strip()

    def _write(self, script: str) -> str:
        file = self.slurm.home / "script.py"
        file.write_text(script)
        return str(file)

    def shows(self, pattern: str, number: int = 1) -> bool:
        text = self.output.read_text() if self.output.exists() else ""
        return len(re.findall(pattern, text)) >= number

    def wait_for(self, pattern: str, number: int = 1, within_s: float = 60.0) -> None:
        until(lambda: self.shows(pattern, number), within_s=within_s)

    def places(self) -> list[list[str]]:
        """Return, for each attempt that has begun: worker, attempt, step, host, GPUs."""
        lines = re.findall(r"begins (.*)", self.output.read_text())
        return [line.split(" ") for line in lines]

    def written(self, worker: str, attempt: int) -> list[float]:
        """Return the times at which an attempt has written to the folder that all nodes share."""
        pattern = rf"^{worker} {attempt} (\S+)$"
        return [float(text) for text in re.findall(pattern, self.judge.read_text(), re.M)]

    def jobs(self) -> list[str]:
        """Return the numbers of jobs that wait, run or are ending."""
        listed = self.slurm.run(self.host, ["squeue", "--noheader", "--format=%A"])
        return listed.stdout.split()

    def wait_until_nothing_is_left(self, within_s: float = ENDED_WITHIN_S) -> None:
        until(lambda: not self.jobs(), within_s=within_s)
        with contextlib.suppress(AssertionError):  # the one below says what is left
            until(lambda: not self._processes(), within_s=within_s)
        assert self._processes() == []

    def _processes(self) -> list[str]:
        """Return "host: state, command line" for each process that isn't one of Slurm's daemons."""
        found = []
        for host in self.network.hosts:
            for pid in set(host.pids()).difference(self.slurm.daemons(host)):
                with contextlib.suppress(OSError):  # it ends at this moment
                    process = Path(f"/proc/{pid}")
                    state = process.joinpath("stat").read_text().rpartition(")")
                    command = process.joinpath("cmdline").read_text().replace("\0", " ")
                    found.append(f"{host.name}: {state[0]}) {state[2][1]} {command}")
        return found


@pytest.fixture
def launcher(slurm_network: Network, slurm: Slurm) -> Iterator[Launcher]:
    launcher = Launcher(slurm_network, slurm)
    yield launcher
    for host in slurm_network.hosts:
        if host.pid:
            host.kill_all(slurm.daemons(host))


def program(call: str) -> str:
    return f"{WORKERS}\nif __name__ == '__main__':\n    main({call})\n"


def test_workers_on_three_nodes_call_each_other_and_nothing_is_left(launcher: Launcher) -> None:
    with launcher.start(GREETINGS) as process:
        status = process.wait(60)

    assert status == 0, launcher.output.read_text()
    greetings = set(re.findall(r"hello (h\d), here is (h\d)", launcher.output.read_text()))
    names = ("h1", "h2", "h3")
    assert greetings == {(guest, greeter) for guest in names for greeter in names}
    launcher.wait_until_nothing_is_left()
    assert list((launcher.slurm.home / ".launchpad-slurm").iterdir()) == []


def test_workers_have_gpus_of_their_own(launcher: Launcher) -> None:
    with launcher.start(program("4, 1, nodes=2")):
        launcher.wait_for("begins", 4)

        places = launcher.places()

    assert len({(host, gpus) for _, _, _, host, gpus in places}) == 4
    assert {gpus for *_, gpus in places} == {"0", "1"}


def test_a_killed_worker_is_started_again_in_the_same_step(launcher: Launcher) -> None:
    with launcher.start(program("2, 0, nodes=2")):
        launcher.wait_for("begins", 2)
        job = launcher.jobs()[0]
        place = {worker: host for worker, _, _, host, _ in launcher.places()}["worker-1"]
        host = next(host for host in launcher.network.hosts if host.name == place)

        host.run(["pkill", "-KILL", "--exact", "worker-1"])
        launcher.wait_for("begins worker-1 2")

        listed = launcher.slurm.run(launcher.host, ["squeue", "-h", "-s", "-o", "%i"])
        assert sorted(listed.stdout.split()) == sorted([f"{job}.0", f"{job}.batch"])


def test_scancel_stops_workers_in_order_and_ends_their_daemons(launcher: Launcher) -> None:
    with launcher.start(program("3, 0, nodes=3"), "daemon") as process:
        launcher.wait_for("begins", 3)

        launcher.slurm.run(launcher.host, ["scancel", *launcher.jobs()])

        launcher.wait_until_nothing_is_left()
        status = process.wait(ENDED_WITHIN_S)
    assert status == 128 + signal.SIGTERM
    launcher.wait_for("ends in order", 3)
    assert launcher.shows("stopping: Slurm job .* Slurm has sent SIGTERM to h")


def test_signals_that_announce_the_time_limit_end_nothing(launcher: Launcher) -> None:
    with launcher.start(program("2, 0, nodes=2")) as process:
        launcher.wait_for("begins", 2)
        job = launcher.jobs()[0]

        # As with `#SBATCH --signal`, these go to all processes of all steps.
        for name in ("USR2", "USR1"):
            launcher.slurm.run(launcher.host, ["scancel", f"--signal={name}", job])

        launcher.wait_for("notices SIGUSR1", 2)
        process.send_signal(signal.SIGTERM)
        process.wait(ENDED_WITHIN_S)
    launcher.wait_for("ends in order", 2)
    assert len(launcher.places()) == 2


def test_a_killed_launcher_leaves_no_job_and_no_process(launcher: Launcher) -> None:
    with launcher.start(program("3, 0, nodes=3"), "daemon") as process:
        launcher.wait_for("begins", 3)

        process.kill()

        launcher.wait_until_nothing_is_left()


def test_a_launcher_that_is_killed_while_its_job_waits_leaves_nothing(launcher: Launcher) -> None:
    blocker = ["sbatch", "--parsable", "--nodes=3", "--exclusive", "--wrap=sleep 1000"]
    number = launcher.slurm.run(launcher.host, blocker).stdout.strip()
    with launcher.start(program("3, 0, nodes=3")) as process:
        launcher.wait_for(r"waiting for Slurm: job \d+ is PENDING")
        process.kill()

    launcher.slurm.run(launcher.host, ["scancel", number])

    launcher.wait_until_nothing_is_left()


def test_a_cancelled_job_that_still_waits_fails_the_launch_with_slurms_reason(
    launcher: Launcher,
) -> None:
    blocker = ["sbatch", "--parsable", "--nodes=3", "--exclusive", "--wrap=sleep 1000"]
    number = launcher.slurm.run(launcher.host, blocker).stdout.strip()
    with launcher.start(program("3, 0, nodes=3")) as process:
        launcher.wait_for(r"waiting for Slurm: job \d+ is PENDING")

        own = [job for job in launcher.jobs() if job != number]
        launcher.slurm.run(launcher.host, ["scancel", *own])

        assert process.wait(30) == 6
    assert launcher.shows(r"failed in start .*: Slurm job \d+ has ended: CANCELLED")


def test_a_refused_job_fails_the_launch_at_once(launcher: Launcher) -> None:
    with launcher.start(program("1, 0, partition='nosuch'")) as process:
        assert process.wait(30) == 1

    assert launcher.shows("Slurm refuses the job: .*invalid partition specified: nosuch")


def test_workers_of_a_node_without_power_start_on_another_one(launcher: Launcher) -> None:
    with launcher.start(program("3, 0, nodes=3, cpus_per_node=4")) as process:
        launcher.wait_for("begins", 3)
        h3 = launcher.network.hosts[2]

        h3.lose_power()

        lost_at = time.monotonic()
        launcher.wait_for("does not answer", within_s=8)
        launcher.wait_for("begins", 4)
        assert time.monotonic() - lost_at < 25
        worker = next(name for name, _, _, host, _ in launcher.places()[:3] if host == "h3")
        again, attempt, _, host, _ = launcher.places()[3]
        assert (again, attempt) == (worker, "2")
        assert host != "h3"
        process.send_signal(signal.SIGTERM)
        process.wait(ENDED_WITHIN_S)
    launcher.network.boot(h3)


def test_a_node_that_is_cut_off_ends_its_workers_before_they_start_elsewhere(
    launcher: Launcher,
) -> None:
    with launcher.start(program("3, 0, nodes=3, cpus_per_node=4")) as process:
        launcher.wait_for("begins", 3)
        worker = next(name for name, _, _, host, _ in launcher.places() if host == "h3")

        launcher.network.hosts[2].pull_cable()

        launcher.wait_for("begins", 4)
        until(lambda: bool(launcher.written(worker, 2)))
        launcher.network.hosts[2].plug_in()
        process.send_signal(signal.SIGTERM)
        process.wait(ENDED_WITHIN_S)
    assert max(launcher.written(worker, 1)) < min(launcher.written(worker, 2))
    launcher.wait_until_nothing_is_left(within_s=60.0)


def test_a_script_in_a_job_uses_its_nodes_and_goes_on_in_a_requeued_job_after_the_time_limit(
    launcher: Launcher,
) -> None:
    script = program("2, 1, requeue=True")
    options = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", "--gres=gpu:1"]

    job = launcher.submit(script, *options, "--time=1", "--requeue", "--open-mode=append")

    launcher.wait_for("begins", 2)
    assert {host for _, _, _, host, _ in launcher.places()} == {"h1", "h2"}
    launcher.wait_for("stopping: Slurm job .* is at its time limit", within_s=75)
    launcher.wait_for("ends in order", 2)
    show = ["scontrol", "show", "job", "-o", job]

    def waits_again() -> bool:
        shown = launcher.slurm.run(launcher.host, show).stdout
        return "Restarts=1" in shown and "JobState=PENDING" in shown

    until(waits_again, within_s=20)

    def begins_again() -> bool:
        # Slurm lets a requeued job wait for two minutes. Only root may change that, and Slurm sets the time
        # at some moment after it has begun to list the job as pending.
        start_now = ["scontrol", "update", f"jobid={job}", "StartTime=now"]
        launcher.host.run(start_now, check=False)  # refused if the job has just begun
        return launcher.shows("begins", 4)

    until(begins_again)
    assert all(int(step) > 0 for _, _, step, _, _ in launcher.places()[2:])


def test_each_task_of_a_job_array_uses_its_own_nodes_only(launcher: Launcher) -> None:
    options = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--open-mode=append"]

    array = launcher.submit(SWEEP, "--array=0-3", *options)

    launcher.wait_for("begins", 8)
    printed = launcher.output.read_text()
    own = dict(re.findall(r"launches (\d) (\d+)", printed))
    assert len(set(own.values())) == 4
    places = set(re.findall(r"begins (\d) (\d+) (h\d)", printed))
    assert {(seed, job) for seed, job, _ in places} == set(own.items())
    assert len(places) == 8

    # Only this task ends, although the last one has the same number as the whole array.
    launcher.slurm.run(launcher.host, ["scancel", f"{array}_1"])
    launcher.wait_for("ends 1", 2)
    until(lambda: set(launcher.jobs()) == set(own.values()) - {own["1"]})
    launcher.slurm.run(launcher.host, ["scancel", array])
    launcher.wait_until_nothing_is_left()
    assert [len(re.findall(f"ends {seed}", launcher.output.read_text())) for seed in own] == [2] * 4
