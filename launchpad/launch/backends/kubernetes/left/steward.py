"""Steward: what runs in the pod of a supervisor: it launches, and prints what a script would.

launcher ◀── log: Begun, lines of workers, Over ── steward ── the cluster's API ──▶ pods of the run
         ─── annotation: stop, stacks ───────────▶
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from launchpad import outcome
from launchpad.errors import LaunchError, ProgramFailed
from launchpad.launch.backends.kubernetes.backend import Kubernetes
from launchpad.launch.backends.kubernetes.cluster.api import Api
from launchpad.launch.backends.kubernetes.cluster.cluster import Cluster, Refused, Unreachable
from launchpad.launch.backends.kubernetes.left import supervisor
from launchpad.launch.backends.kubernetes.left.supervisor import Errand
from launchpad.launch.backends.kubernetes.objects import manifest
from launchpad.launch.backends.kubernetes.objects.layout import GIVEN, WRITABLE
from launchpad.launch.backends.kubernetes.objects.run import Owner
from launchpad.launch.backends.kubernetes.pod import pod
from launchpad.launch.backends.kubernetes.pod.orders import Orders
from launchpad.launch.backends.kubernetes.pod.readiness import Readiness
from launchpad.launch.backends.kubernetes.post import letters, parcels, shared
from launchpad.launch.backends.kubernetes.post.letters import Begun, Letter, Over, Stacks, Wishes
from launchpad.launch.steward import Steward
from launchpad.outcome import Outcome

_LOOK_S = 0.2
_END_S = 60.0
_AT_ONCE = 32
_STACKS_LENGTH = 8000
"""Of a worker's stacks, in characters: lines of a log may not be long."""

_EXISTS = 409


class PodSteward:
    """Runs one program.

    Args:
      given: Where what was mounted is.
    """

    def __init__(self, given: Path, errand: Errand) -> None:
        self._errand = errand
        self._steward = Steward(sys.stdout)
        self._readiness = Readiness()
        self._orders, self._wishes = Orders(given), Wishes()
        self._is_asked = threading.Event()
        self._asking = ThreadPoolExecutor(_AT_ONCE)

    def live(self) -> Over:
        """From the launch to the end of the program."""
        signal.signal(signal.SIGTERM, lambda *_: self._is_asked.set())
        errand = self._errand
        backend = Kubernetes(**vars(errand.settings))
        backend.sender = supervisor.of(self._owner(), errand)
        begun = self._steward.begin(errand.plan, backend, errand.sender.notice_s)
        try:
            return self._supervise(begun)
        except BaseException:
            self._steward.stop(at_once=True)
            self._steward.wait(_END_S)
            raise

    def _supervise(self, begun: Mapping[str, Any]) -> Over:
        say(Begun({**begun, "workers": {}}))
        with contextlib.suppress(OSError):  # a neighbour has the port, and nobody waits for this
            self._readiness.tell()
        while not self._steward.wait(_LOOK_S):
            self._readiness.answer()
            self._obey()
        return self._over()

    @property
    def exit_status(self) -> int:
        """What the container exits with."""
        return self._steward.exit_status()

    def _over(self) -> Over:
        program, failure = self._errand.plan.program, self._steward.failure()
        states: dict[str, list[str]] = {}
        for row in self._steward.status():
            states.setdefault(row.state, []).append(row.worker)
        if isinstance(failure, ProgramFailed):
            failures = (failure.outcome, *failure.consequences)
            return Over(program, tuple(map(self._found_there, failures)), states=states)
        return Over(program, (), "" if failure is None else str(failure), states)

    def _found_there(self, ended: Outcome) -> Outcome:
        """Its log is in a pod that ends now; what it has printed is in the supervisor's, which stays."""
        where = f"kubectl logs job/{supervisor.name(self._errand.run)} -n {self._namespace}"
        return replace(ended, log_path=where if ended.log_path else "")

    def _owner(self) -> Owner:
        """What the run is to belong to; there is one run only, though a cluster may start its pod twice.

        Raises:
          LaunchError: there was one.
        """
        cluster = Api(self._errand.settings.namespace)
        self._namespace = cluster.namespace
        name = supervisor.name(self._errand.run)
        try:
            owner = Owner(name, cluster.read("Secret", name)["metadata"]["uid"])
            _mark(cluster, self._errand, owner)
        except (Refused, Unreachable) as error:
            raise LaunchError(f"the supervisor cannot use its cluster: {error}") from error
        finally:
            cluster.close()
        return owner

    def _obey(self) -> None:
        wishes, before = self._orders.wishes(), self._wishes
        self._wishes = wishes
        if self._is_asked.is_set() or wishes.stop:
            self._is_asked.clear()
            if not before.stop or (wishes.kill and not before.kill):
                self._steward.stop(wishes.kill)
        if wishes.stacks > before.stacks:
            for worker in self._errand.plan.workers:
                self._asking.submit(self._tell_stacks, worker.name, wishes.stacks)

    def _tell_stacks(self, worker: str, number: int) -> None:
        text = self._steward.stacks([worker])[worker]
        say(Stacks(worker, number, text[-_STACKS_LENGTH:]))


def say(letter: Letter) -> None:
    """Prints it, between lines of workers."""
    sys.stdout.write(letters.written(letter).decode())
    sys.stdout.flush()


def _mark(cluster: Cluster, errand: Errand, owner: Owner) -> None:
    run = replace(supervisor.run_of(errand, {}), owner=owner)
    try:
        cluster.create(manifest.mark(run))
    except Refused as refused:
        if refused.status == _EXISTS:
            raise LaunchError(
                f"{errand.run} was launched already, by a pod that is gone, and is not launched again;"
                f" what may be left of it goes with `kubectl delete job {owner.name} -n {cluster.namespace}`"
            ) from refused
        raise


def main() -> NoReturn:
    """Launches, prints how it ended, and exits as a script would."""
    given = Path(GIVEN)
    pod.settle_in(Path(WRITABLE))
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    ended, code = Over(""), outcome.NOT_THERE
    try:
        if differs := shared.differences(given):
            raise LaunchError(f"{shared.UNLIKE.format(differs)}; {shared.ALIKE}")
        steward = PodSteward(given, _errand(given))
        ended = steward.live()
        code = steward.exit_status
    except Exception as error:
        ended = Over("", (), str(error) if isinstance(error, LaunchError) else repr(error))
    say(ended.short())
    if failure := ended.failure():
        print(failure, flush=True)
    os._exit(code)


def _errand(given: Path) -> Errand:
    errand: Any = pickle.loads(parcels.unpacked(given, supervisor.ERRAND))
    assert isinstance(errand, Errand)
    return errand


if __name__ == "__main__":
    main()
