"""The cost of a launcher on Kubernetes with very many pods: `python benchmarks/pods.py`.

etcd, the API server and the controller of Jobs are real. Nodes and scheduler are simulated, and no container
runs, so that 1,000 pods fit on a small machine. For each size, a launcher in a process of its own launches a
program of that many servers:

start    from launch() until the launcher has seen that all workers run
idle     nothing happens
storm    a tenth of the pods fail at once, until all workers run again
outage   the API server is killed while all pods run, and started again (only for the last size)
stop     from stop() until nothing of the run is left on the cluster

For each phase, the script prints the launcher's CPU time, and its requests to the API server, from the audit
log. In the storm, a pod is one that has failed. How long a phase takes depends mostly on the API server: the
script prints how many cores that has used. It exits with 1 when a promise does not hold.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.cluster import launcher, simulated_kubelets
from benchmarks.cluster.control_plane import LAUNCHER, ControlPlane, find_binaries
from benchmarks.harness import bars, holdings
from benchmarks.harness.command_line import Parser
from benchmarks.harness.figures import Table
from benchmarks.harness.processes import Worker, wait_until

BARS = bars.parse("""
1,000 pods: cores of the launcher, in the busiest phase | pods/1000/most_cores         | ≤ 1
1,000 pods: peak memory of the launcher (RSS)           | pods/1000/peak_mib           | ≤ 400 MiB
1,000 pods: requests a pod, from launch to end          | pods/1000/requests_per_pod   | ≤ 8
1,000 pods: requests of a restart                       | pods/1000/requests_per_restart | ≤ 8
CPU time of the launcher a pod, last size : first       | growth/cpu                   | ≤ 2
requests a pod, last size : first                       | growth/requests              | ≤ 1.5
from its restart until all logs are read again          | pods/1000/outage/recovery_s  | ≤ 30 s
workers ended by a restart of the API server            | pods/1000/outage/n_ended     | = 0
""")

STORM_SHARE = 0.1
_LOOK_S = 0.5
_PHASE_S = 540.0
"""The most seconds of a phase."""


@dataclass(frozen=True)
class Phase:
    """The figures of one phase."""

    seconds: float
    cpu_s: float
    api_server_cpu_s: float
    requests: Counter[str]

    @property
    def cores(self) -> float:
        return self.cpu_s / self.seconds

    @property
    def n_requests(self) -> int:
        return self.requests.total()

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "cores": self.cores, "n_requests": self.n_requests}


class Measurement:
    """One run of a launcher, phase by phase. Each phase is printed when it is over."""

    def __init__(self, plane: ControlPlane, kubelets: Worker, n_pods: int) -> None:
        self._plane = plane
        self._kubelets = kubelets
        self._n_pods = n_pods
        self._n_attempts = n_pods
        self._phases: dict[str, Phase] = {}

    def run(self, idle_s: float, outage_s: float) -> dict[str, Any]:
        """Run all phases, and return their figures. Without `outage_s`, the API server runs on."""
        n = self._n_pods
        n_failing = round(n * STORM_SHARE)
        with ExitStack() as stack:
            kubeconfig = self._plane.kubeconfig(LAUNCHER)
            self._launcher = Worker(stack, launcher.serve, kubeconfig, n)
            self._launcher.hear()
            self._begin()
            self._launcher.say("launch")
            self._wait()
            self._end("start", n)
            time.sleep(idle_s)
            self._end("idle", n)
            n_failed = self._kubelets.ask(("fail", n_failing))
            assert n_failed == n_failing, f"of {n_failing} pods, {n_failed} have failed"
            self._n_attempts += n_failing
            self._wait()
            self._end("storm", n_failing)
            outage: dict[str, float] = {}
            if outage_s:
                outage = self._restart_api_server(outage_s)
                self._end("outage", n)
            assert self._launcher.ask("stop") == "stopped"
            self._end("stop", n)
            peak = holdings.resident_peak(self._launcher.pid)
        counts = self._kubelets.ask(("counts",))
        assert not counts["pods"], f"the launcher has left {counts['pods']} pods"
        whole = [self._phases[name] for name in ("start", "idle", "stop")]
        return {
            "phases": {name: phase.to_dict() for name, phase in self._phases.items()},
            "most_cores": max(phase.cores for phase in self._phases.values()),
            "peak_mib": peak / 2**20,
            "cpu_ms_per_pod": 1000 * sum(phase.cpu_s for phase in whole) / n,
            "requests_per_pod": sum(phase.n_requests for phase in whole) / n,
            "requests_per_restart": self._phases["storm"].n_requests / n_failing,
            "outage": outage,
        }

    def _begin(self) -> None:
        self._began = time.monotonic()
        self._cpu_before = self._cpu()
        self._plane.new_requests()

    def _end(self, name: str, n_pods: int) -> None:
        """Note the figures since the last phase, and print them."""
        seconds = time.monotonic() - self._began
        before = self._cpu_before
        after = self._cpu()
        phase = Phase(
            seconds, after[0] - before[0], after[1] - before[1], self._plane.new_requests()
        )
        self._phases[name] = phase
        print(
            f"{self._n_pods:5,} pods {name:7}{seconds:7.1f} s{phase.cpu_s:8.2f} s of CPU"
            f"{phase.cores:7.2f} cores{phase.n_requests / n_pods:8.2f} requests a pod"
            f"{phase.api_server_cpu_s / seconds:7.2f} cores of the API server",
            flush=True,
        )
        for title, number in phase.requests.most_common():
            print(f"{number:20,} {title}", flush=True)
        self._begin()

    def _cpu(self) -> tuple[float, float]:
        """Return the CPU seconds of the launcher with its children, and of the API server."""
        pid = self._launcher.pid
        own_s = sum(map(holdings.cpu_s, (pid, *holdings.children(pid))))
        return own_s, holdings.cpu_s(self._plane.api_server_pid)

    def _wait(self) -> None:
        """Wait until all workers run, in the attempts that they must have."""
        deadline = self._began + _PHASE_S
        expected = (self._n_pods, self._n_attempts)
        while (looked := self._launcher.ask("look")) != expected:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{looked} workers and attempts run after {_PHASE_S:g} s")
            time.sleep(_LOOK_S)

    def _restart_api_server(self, outage_s: float) -> dict[str, float]:
        """Kill the API server, and start it again. Return the figures of the launcher's recovery."""
        self._plane.kill_api_server()
        time.sleep(outage_s)
        n_followed = self._kubelets.ask(("counts",))["followed"]
        assert not n_followed, f"{n_followed} logs are read without an API server"
        self._plane.start_api_server()
        self._cpu_before = (self._cpu_before[0], 0.0)
        began = time.monotonic()
        wait_until(self._follows_all, _PHASE_S, pause_s=_LOOK_S)
        recovery_s = time.monotonic() - began
        _, n_attempts = self._launcher.ask("look")
        n_ended = n_attempts - self._n_attempts
        # Only if the launcher watches pods again, it sees the pod that comes after this failure.
        self._n_attempts = n_attempts + self._kubelets.ask(("fail", 1))
        self._wait()
        print(f"all logs are read again after {recovery_s:.1f} s; {n_ended} workers have ended")
        return {"recovery_s": recovery_s, "n_ended": n_ended}

    def _follows_all(self) -> bool:
        followed: int = self._kubelets.ask(("counts",))["followed"]
        return followed == self._n_pods


def main() -> None:
    quick = {"sizes": [10, 20], "idle_s": 1.0, "outage_s": 2.0}
    parser = Parser(__doc__, quick, sizes=[100, 300, 1000], idle_s=60.0, outage_s=10.0)
    options = parser.parse_args()
    binaries = find_binaries()
    figures: dict[str, Any] = {}
    n_nodes = 1 + max(options.sizes) * 2 // simulated_kubelets.PODS_PER_NODE
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(binaries))
        place = plane.url, str(plane.certificates)
        kubelets = Worker(stack, simulated_kubelets.serve, *place, n_nodes)
        kubelets.hear()
        for size in options.sizes:
            outage_s = options.outage_s if size == options.sizes[-1] else 0.0
            figures[str(size)] = Measurement(plane, kubelets, size).run(options.idle_s, outage_s)
    table = Table(
        "pods", {"CPU ms a pod": ".1f", "requests a pod": ".2f", "peak MiB": ".0f"}, width=8
    )
    for size, row in figures.items():
        table.row(size, row["cpu_ms_per_pod"], row["requests_per_pod"], row["peak_mib"])
    first = figures[str(options.sizes[0])]
    last = figures[str(options.sizes[-1])]
    growth = {
        "cpu": last["cpu_ms_per_pod"] / first["cpu_ms_per_pod"],
        "requests": last["requests_per_pod"] / first["requests_per_pod"],
    }
    report = {"pods": figures, "growth": growth}
    bars.finish(options, report, [bar for bar in BARS if bar.figure_in(report) is not None])


if __name__ == "__main__":
    main()
