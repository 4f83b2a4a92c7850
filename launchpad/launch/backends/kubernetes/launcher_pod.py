"""The process in a launcher pod: it launches, supervises, and prints what a script would print.

DetachedRun ◀── annotations: launched, ended ── launcher pod ── the cluster's API ──▶ pods of the run
            ─── annotation: stop, question ───▶
            ◀── Secret: answer ────────────────

If a launcher pod can't launch, or can't write its annotations, its termination message says why.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

from launchpad import outcome
from launchpad.errors import LaunchError, ProgramFailed
from launchpad.launch.backends.kubernetes import pod_messages, pod_status
from launchpad.launch.backends.kubernetes.api.client import Cluster, ClusterError, RetryWindow, T
from launchpad.launch.backends.kubernetes.api.pod_watch import PodInformer
from launchpad.launch.backends.kubernetes.backend import Kubernetes
from launchpad.launch.backends.kubernetes.detached import launcher_manifests, launcher_state
from launchpad.launch.backends.kubernetes.detached.launcher_manifests import LauncherSpec
from launchpad.launch.backends.kubernetes.detached.launcher_state import ProgramEnded
from launchpad.launch.backends.kubernetes.manifests import manifest, names
from launchpad.launch.backends.kubernetes.manifests.names import MOUNTED, WRITABLE, Owner
from launchpad.launch.backends.kubernetes.pod import entrypoint
from launchpad.launch.backends.kubernetes.pod.entrypoint import ReadinessPort
from launchpad.launch.backends.kubernetes.pod_inputs import pod_input
from launchpad.launch.backends.kubernetes.pod_messages import PodCommands
from launchpad.launch.remote_launcher import RemoteLauncher
from launchpad.outcome import Outcome

_POLL_S = 0.2
_AGAIN_S = 1.0
_END_S = 60.0
_AT_ONCE = 32
_EXISTS = 409


class LauncherPod:
    """The launcher of one program, in the pod `name`. Its `launcher` has the container's exit status."""

    def __init__(self, cluster: Cluster, name: str, spec: LauncherSpec) -> None:
        self._cluster = cluster
        self._name = name
        self._spec = spec
        self._object_name = launcher_manifests.name(spec.submitter.run)
        self.launcher = RemoteLauncher(sys.stdout)
        self._owner: Owner
        self._readiness = ReadinessPort()
        self._is_terminated = threading.Event()
        self._executor = ThreadPoolExecutor(_AT_ONCE)

    def run(self) -> ProgramFailed | LaunchError | None:
        """Launch the program, supervise it to its end, and return its failure, if there is one.

        Raises:
            LaunchError: the program could not be launched.
            ClusterError: the record could not be written into the cluster, so the program was stopped.
        """
        signal.signal(signal.SIGTERM, lambda *_: self._is_terminated.set())
        spec = self._spec
        backend = Kubernetes(**vars(spec.settings))
        self._owner = self._own()
        backend.submitter = replace(spec.submitter, owner=self._owner)
        record = self.launcher.begin(spec.plan, backend, spec.submitter.notice_s)
        try:
            self._annotate(launcher_state.LAUNCHED, {**record, "workers": {}})
            self._supervise()
        except BaseException:
            self.launcher.stop(at_once=True)
            self.launcher.wait(_END_S)
            raise
        states: dict[str, list[str]] = {}
        for row in self.launcher.status():
            states.setdefault(row.state, []).append(row.worker)
        failure = self.launcher.failure()
        end = ProgramEnded(spec.plan.program, (), str(failure or ""), states)
        if isinstance(failure, ProgramFailed):
            # The log files vanish with this pod. The workers' output stays in this pod's own log.
            where = f"kubectl logs job/{self._object_name} -n {self._cluster.namespace}"
            failures = [
                replace(failed_outcome, log_path=where if failed_outcome.log_path else "")
                for failed_outcome in (failure.outcome, *failure.consequences)
            ]
            end = replace(end, failures=failures, why="")
        # If this fails, the termination message still says how the program ended.
        with contextlib.suppress(ClusterError):
            self._annotate(launcher_state.ENDED, asdict(end))
        return end.failure()

    def _own(self) -> Owner:
        """Claim the run for this pod, and return the run's owner.

        If a launcher pod is deleted or its node dies, the cluster starts another one. What the first pod knew
        of the program is lost with it, so the second pod only ends the program.

        Raises:
            LaunchError: another pod has launched the run already, or the cluster refuses.
        """
        name = self._object_name
        cluster = self._cluster
        try:
            owner = Owner(name, cluster.read("ConfigMap", name)["metadata"]["uid"])
            run = replace(launcher_manifests.run_of(self._spec, {}), owner=owner)
            cluster.create(manifest.config_map(run, f"{run.name}-begun", {}))
        except ClusterError as error:
            if error.status == _EXISTS:
                ended = "so the program was ended"
                try:
                    self._end_orphans()
                except ClusterError as refusal:
                    ended = f"and the program could not be ended: {refusal}"
                raise LaunchError(
                    f"the pod of the supervisor of {self._spec.submitter.run} is gone: it was deleted, or its"
                    f" node was drained or died. Another supervisor cannot take over its workers, {ended}."
                    " Launch it again; with state=…, it continues from what it has saved."
                    f" `kubectl delete job {name} -n {cluster.namespace}` deletes what is left"
                ) from error
            raise LaunchError(f"the supervisor cannot use its cluster: {error}") from error
        return owner

    def _end_orphans(self) -> None:
        """Delete the run of an earlier launcher pod, after that pod has ended or its node is gone.

        Raises:
            LaunchError: this pod was told to stop before that.
            ClusterError: the cluster refuses, or has not answered for a minute.
        """
        run = self._spec.submitter.run
        selector = f"{names.RUN}={self._object_name}"
        grace_s = launcher_manifests.run_of(self._spec, {}).grace_s
        deadline = time.monotonic() + grace_s
        while True:
            pods, _ = self._retried(partial(self._cluster.list, "Pod", selector))
            others = [
                pod["metadata"]
                for pod in pods
                if pod["metadata"]["name"] != self._name and not pod_status.is_over(pod)
            ]
            # A cluster may start two pods for a Job at once. Then the other one supervises the program.
            is_left = all("deletionTimestamp" in metadata for metadata in others)
            if not others or (is_left and time.monotonic() > deadline):
                break
            if not is_left:
                deadline = time.monotonic() + grace_s
            if self._is_terminated.wait(_AGAIN_S):
                raise LaunchError(
                    f"{run} is supervised by another pod, and this one was told to stop"
                )
        self._retried(partial(self._cluster.delete, "ConfigMap", run, policy="Foreground"))

    def _supervise(self) -> None:
        """Apply commands and answer questions until the program has ended."""
        commands = PodCommands()
        current = commands
        question_ids = {""}

        def on_pod(kind: str, pod: Mapping[str, Any]) -> None:
            """Take this pod's commands. The informer's thread calls this, even for a pod in its place."""
            nonlocal commands
            if pod["metadata"]["name"] == self._name:
                with contextlib.suppress(ValueError, TypeError):
                    text = pod["metadata"]["annotations"].get(names.COMMANDS, "")
                    commands = pod_messages.parse_commands(text)
                    question = commands.question
                    if question.get("id", "") not in question_ids:
                        question_ids.add(question["id"])
                        self._executor.submit(self._answer, **question)

        # Another process may have the port. That does no harm, because nothing waits until this pod is ready.
        with contextlib.suppress(OSError):
            self._readiness.open()
        selector = f"{names.RUN}={self._object_name}"
        PodInformer(self._cluster, selector, on_pod, lambda trouble: None)
        while not self.launcher.wait(_POLL_S):
            self._readiness.answer()
            before = current
            current = commands
            if self._is_terminated.is_set() or current.stop:
                self._is_terminated.clear()
                if not before.stop or (current.kill and not before.kill):
                    self.launcher.stop(current.kill)

    def _answer(self, id: str, method: str, arguments: Sequence[Any]) -> None:
        """Call a method of the launcher, and put what it returns or raises into Secrets."""
        try:
            if method not in launcher_manifests.ASKED:
                raise LaunchError(f"a supervisor is not asked for {method!r}")
            answer = pickle.dumps((getattr(self.launcher, method)(*arguments), None), protocol=5)
        except Exception as error:
            try:
                answer = pickle.dumps((None, error), protocol=5)
            except Exception:
                answer = pickle.dumps((None, LaunchError(repr(error))), protocol=5)
        parts = pod_input.packed(answer)
        run = replace(launcher_manifests.run_of(self._spec, {}), owner=self._owner)
        # Create the first part last, because the asking script looks for that one.
        for i in reversed(range(len(parts))):
            files = {
                launcher_manifests.PART: parts[i],
                launcher_manifests.COUNT: b"%d" % len(parts),
            }
            # Without an answer, the asking script gives up after a while.
            with contextlib.suppress(ClusterError):
                name = launcher_manifests.answer(run.name, id, i)
                self._cluster.create(manifest.secret(run, name, files))

    def _annotate(self, annotation: str, content: Any) -> None:
        """Write an annotation of this pod.

        Raises:
            ClusterError: the cluster refuses, or has not answered for a minute.
        """
        texts = {annotation: launcher_state.written(content)}
        self._retried(partial(self._cluster.patch, "Pod", self._name, {"annotations": texts}))

    def _retried(self, request: Callable[[], T]) -> T:
        """Return the answer to a request. Retry for a minute if the cluster doesn't answer.

        Raises:
            ClusterError: the cluster refuses, or has not answered for a minute.
        """
        retry = RetryWindow()
        failed = object()
        answer = retry.call(request, otherwise=failed)
        while answer is failed:
            time.sleep(_AGAIN_S)
            answer = retry.call(request, otherwise=failed)
        return cast("T", answer)


def main() -> NoReturn:
    """Launch the program, print how it ended, and exit as a script would."""
    mounted = Path(MOUNTED)
    entrypoint.use_writable_dirs(Path(WRITABLE))
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    failure: Exception | None
    code = outcome.NOT_THERE
    try:
        differs = pod_input.mismatch(mounted)
        if differs:
            raise LaunchError(f"{differs}; {pod_input.VERSION_HINT}")
        spec: Any = pickle.loads(pod_input.unpacked(mounted, launcher_manifests.SPEC))
        assert isinstance(spec, LauncherSpec)
        cluster = Cluster(os.environ[launcher_manifests.NAMESPACE])
        pod = LauncherPod(cluster, os.environ[launcher_manifests.POD_NAME], spec)
        failure = pod.run()
        code = pod.launcher.exit_status()
    except Exception as error:
        failure = error
    if failure is not None:
        is_ours = isinstance(failure, (LaunchError, ProgramFailed))
        cause = str(failure) if is_ours else repr(failure)
        end = Outcome(launcher_manifests.NAME, outcome.FAILED, "start", 1, cause)
        with contextlib.suppress(OSError):
            entrypoint.TERMINATION_LOG.write_bytes(pod_messages.termination_message(end))
        print(cause, flush=True)
    os._exit(code)


if __name__ == "__main__":
    main()
