"""A cluster that is not there: for what a launch on Kubernetes does about events that no real one shows.

supervisor ── create, delete, annotate ──▶ FakeCluster ◀── run, write, end, delete … ── test
           ◀── list, watch, log ─────────┘
"""

from __future__ import annotations

import base64
import copy
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from launchpad.launch.backends.kubernetes import pod_messages
from launchpad.launch.backends.kubernetes.api.client import (
    CONTAINER,
    ApiError,
    Manifest,
    Unreachable,
    resource_of,
)
from launchpad.launch.backends.kubernetes.pod_messages import Chunk
from launchpad.runtime.events import Event

_WAIT_S = 30.0


class FakeCluster:
    """Keeps objects, and does with pods what a test says. Methods may be called from any thread.

    Example:
      pod = cluster.pod("learner-0")            # waits until there is one
      cluster.run(pod)
      cluster.report(pod, Ready("learner-0", 1, runs=True))
      cluster.end(pod, exit_code=137, reason="OOMKilled")

    Attributes:
      objects: (kind, name) → manifest, with its status.
      refused: (verb, kind) of what the user may not do.
      is_reachable: Set it to False for a cluster that does not answer.
      no_pods: Why Jobs get no pods, as the cluster says it in an Event; empty if they get them.
      busy: (verb, kind) of the requests that it answers with 429, for as long as they are here.
      requests: (verb, kind) → how many requests there were, with those that failed.
      is_slow: Set it to True for kubelets that leave pods on the list, though nothing of them runs.
    """

    def __init__(self, namespace: str = "default") -> None:
        self.namespace = namespace
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.refused: set[tuple[str, str]] = set()
        self.is_reachable = True
        self.busy: set[tuple[str, str]] = set()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.is_slow = False
        self.no_pods = ""
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._version = 0
        self._oldest = 0
        self._events: list[tuple[int, str, Manifest]] = []
        self._logs: dict[str, list[bytes]] = {}
        self._n_cuts = 0
        self._is_closed = False

    # What the backend asks.

    def create(self, manifest: Manifest) -> Manifest:
        """Makes an object; of a Job a pod, too."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        self._request("create", kind)
        with self._changed:
            if (kind, name) in self.objects:
                raise ApiError(409, f'{kind.lower()}s "{name}" already exists')
            made = self._add(manifest)
            if kind == "Job" and self.no_pods:
                event = {"type": "Warning", "reason": "FailedCreate", "message": self.no_pods}
                owner = {"kind": "Job", "name": name, "uid": made["metadata"]["uid"]}
                metadata = {"name": f"{name}-event", "ownerReferences": [owner]}
                about = {"involvedObject": {"kind": "Job", "name": name}}
                self._add({"kind": "Event", "metadata": metadata, **event, **about})
            elif kind == "Job":
                self._add(self._pod_of(made))
            return copy.deepcopy(made)

    def read(self, kind: str, name: str) -> Manifest:
        """An object."""
        self._request("get", kind)
        with self._changed:
            if (kind, name) not in self.objects:
                raise ApiError(404, f'{kind.lower()}s "{name}" not found')
            return copy.deepcopy(self.objects[kind, name])

    def secret(self, name: str) -> dict[str, bytes]:
        """The files of a Secret."""
        data = self.read("Secret", name)["data"]
        return {file: base64.b64decode(content) for file, content in data.items()}

    def delete(
        self,
        kind: str,
        name: str,
        *,
        policy: str = "Background",
        grace_s: float | None = None,
        uid: str = "",
    ) -> None:
        """Deletes an object and what belongs to it; a pod that runs is asked, unless `grace_s` is 0."""
        self._request("delete", kind)
        with self._changed:
            found = self.objects.get((kind, name))
            if uid and found is not None and found["metadata"]["uid"] != uid:
                raise ApiError(409, f'the UID of {kind.lower()}s "{name}" is not {uid}')
            self._discard(kind, name, grace_s)

    def patch(self, kind: str, name: str, metadata: Mapping[str, Any]) -> None:
        """Merges these into the metadata of an object."""
        self._request("patch", kind)
        with self._changed:
            found = self._existing(kind, name)
            for field, value in metadata.items():
                old = found["metadata"].get(field) or {}
                found["metadata"][field] = old | value if field == "annotations" else value
            self._note("MODIFIED", found)

    def list(self, kind: str, selector: str) -> tuple[list[Manifest], str]:
        """Those with these labels, and the version from which a watch goes on."""
        self._request("list", kind)
        with self._changed:
            found = [o for (k, _), o in self.objects.items() if k == kind and _fits(o, selector)]
            return copy.deepcopy(found), str(self._version)

    def warnings(self, kind: str, name: str = "") -> Sequence[Manifest]:
        """Those about Jobs that get no pods, and those of `warn`."""
        self._request("list", "Event")
        with self._changed:
            found = [copy.deepcopy(o) for (k, _), o in self.objects.items() if k == "Event"]
        return [event for event in found if name in ("", event["involvedObject"]["name"])]

    def watch(self, kind: str, selector: str, version: str) -> Iterator[tuple[str, Manifest]]:
        """What happens to them, until the connection is cut."""
        self._request("watch", kind)
        seen, cuts = int(version), self._n_cuts
        if seen < self._oldest:
            raise ApiError(410, "too old resource version")
        while True:
            with self._changed:
                if self._version <= seen:
                    self._changed.wait(0.05)
                if self._is_closed or self._n_cuts > cuts:
                    return
                events = [event for event in self._events if event[0] > seen]
                seen = max([seen, *(number for number, _, _ in events)])
            self._request()
            for _, change, found in events:
                if found["kind"] == kind and _fits(found, selector):
                    yield change, found

    def log(self, pod: str, since: str = "", *, follow: bool = True) -> Iterator[bytes]:
        """The lines of a pod, each after its time: until it is over, or those that are there now."""
        self._request("get", "Pod/log")
        shown = 0
        while True:
            with self._changed:
                found = self.objects.get(("Pod", pod))
                is_over = found is None or "terminated" in _state(found)
                lines = self._logs.get(pod, [])[shown:]
                shown += len(lines)
                if follow and not lines and not is_over and not self._is_closed:
                    self._changed.wait(0.05)
            self._request()
            yield from (line for line in lines if line.split(b" ")[0].decode() >= since)
            if not follow or (not lines and (is_over or self._is_closed)):
                return

    def rules(self) -> Sequence[Manifest]:
        """None: each right is asked for."""
        self._request()
        return []

    def may(self, verb: str, kind: str) -> bool:
        """Whether `refused` does not say otherwise."""
        self._request()
        return (verb, kind) not in self.refused

    def close(self) -> None:
        """Ends what is being read."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # What a test does.

    def pod(self, worker: str, attempt: int = 1) -> str:
        """The name of a worker's pod; waits until there is one."""
        return str(self.when(lambda: self._pod_name(worker, attempt)))

    def when(self, condition: Callable[[], Any]) -> Any:
        """What the condition gives as soon as that is true; TimeoutError if it does not become so."""
        deadline = time.monotonic() + _WAIT_S
        with self._changed:
            while not (result := condition()):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"there are still {sorted(self.objects)}")
                self._changed.wait(0.05)
        return result

    def run(self, pod: str, ip: str = "10.0.0.7") -> None:
        """Its container runs."""
        self._set(pod, "Running", {"running": {}}, podIP=ip)

    def wait(self, pod: str, reason: str, message: str = "") -> None:
        """Its container waits, for its image for instance."""
        self._set(pod, "Pending", {"waiting": {"reason": reason, "message": message}})

    def refuse_to_place(self, pod: str, message: str) -> None:
        """The scheduler finds no node for it."""
        why = {"reason": "Unschedulable", "message": message}
        conditions = [{"type": "PodScheduled", "status": "False", **why}]
        self._set(pod, "Pending", {}, conditions=conditions)

    def warn(self, pod: str, reason: str) -> None:
        """It warns about a pod."""
        about = {"kind": "Pod", "name": pod}
        event = {"kind": "Event", "metadata": {}, "reason": reason, "involvedObject": about}
        with self._changed:
            self.objects["Event", f"{pod}-{reason}"] = event

    def be_ready(self, pod: str, is_ready: bool) -> None:
        """Its container runs, and the cluster calls it ready, or no longer."""
        conditions = [{"type": "Ready", "status": str(is_ready)}]
        self._set(pod, "Running", {"running": {}}, podIP="10.0.0.7", conditions=conditions)

    def write(self, pod: str, *lines: str) -> None:
        """It prints."""
        with self._changed:
            log = self._logs.setdefault(pod, [])
            for line in lines:
                log.append(f"2026-01-01T{next(self._numbers):018d} {line}".encode())
            self._changed.notify_all()

    def report(self, pod: str, report: Event | Chunk) -> None:
        """It reports."""
        self.write(pod, pod_messages.written(report).decode().removesuffix("\n"))

    def end(self, pod: str, exit_code: int = 0, reason: str = "", message: str = "") -> None:
        """Its container ends."""
        ended = {"exitCode": exit_code, "reason": reason or "Completed", "message": message}
        self._set(pod, "Failed" if exit_code else "Succeeded", {"terminated": ended})

    def evict(self, pod: str, reason: str, message: str = "") -> None:
        """Its node ends it."""
        self._set(pod, "Failed", {}, reason=reason, message=message)

    def lose(self, pod: str) -> None:
        """It is gone from one moment to the next."""
        with self._changed:
            self._remove("Pod", pod)

    def lose_pods(self) -> None:
        """No pod is left, whichever there are: others may be deleting some at the same time."""
        with self._changed:
            for kind, name in list(self.objects):
                if kind == "Pod":
                    self._remove(kind, name)

    def forget(self) -> None:
        """Forgets what has happened so far, and cuts connections: a watch from there is refused with 410."""
        with self._changed:
            self._version += 1
            self._oldest = self._version
            self._events.clear()
            self._n_cuts += 1
            self._changed.notify_all()

    # Inside.

    def _request(self, verb: str = "", kind: str = "") -> None:
        with self._changed:
            self.requests[verb, kind] += 1
        if not self.is_reachable:
            raise Unreachable("the fake cluster does not answer")
        if (verb, kind) in self.busy:
            raise ApiError(429, "too many requests, please try again later")
        if (verb, kind) in self.refused:
            raise ApiError(403, f"you cannot {verb} {kind.lower()}s")

    def _add(self, manifest: Manifest) -> Manifest:
        made = copy.deepcopy(manifest)
        made["metadata"]["uid"] = f"uid-{next(self._numbers)}"
        self.objects[made["kind"], made["metadata"]["name"]] = made
        self._note("ADDED", made)
        return made

    def _pod_of(self, job: Manifest) -> Manifest:
        template = copy.deepcopy(job["spec"]["template"])
        name = job["metadata"]["name"]
        owner = {"kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
        own = {"name": f"{name}-{next(self._numbers)}", "ownerReferences": [owner]}
        metadata = template["metadata"] | own
        status = {"phase": "Pending", "containerStatuses": []}
        return {"kind": "Pod", "metadata": metadata, "spec": template["spec"], "status": status}

    def _discard(self, kind: str, name: str, grace_s: float | None = None) -> None:
        """A pod that runs is asked first."""
        found = self.objects.get((kind, name))
        if found is None:
            return
        stays = kind == "Pod" and ("running" in _state(found) or self.is_slow)
        if stays and grace_s != 0:
            if grace_s is None:
                grace_s = found["spec"]["terminationGracePeriodSeconds"]
            found["metadata"]["deletionTimestamp"] = "now"
            found["metadata"]["deletionGracePeriodSeconds"] = grace_s
            self._note("MODIFIED", found)
        else:
            self._remove(kind, name)

    def _remove(self, kind: str, name: str) -> None:
        gone = self.objects.pop((kind, name))
        self._note("DELETED", gone)
        for key, each in list(self.objects.items()):
            owners = each["metadata"].get("ownerReferences", ())
            if any(o["uid"] == gone["metadata"]["uid"] for o in owners):
                self._discard(*key)

    def _set(self, pod: str, phase: str, state: Mapping[str, Any], **more: Any) -> None:
        with self._changed:
            found = self._existing("Pod", pod)
            container = {"name": CONTAINER, "state": dict(state)}
            found["status"].update(phase=phase, containerStatuses=[container], **more)
            self._note("MODIFIED", found)
            is_deleted = "deletionTimestamp" in found["metadata"]
            if "terminated" in state and is_deleted and not self.is_slow:
                self._remove("Pod", pod)

    def _existing(self, kind: str, name: str) -> Manifest:
        if (kind, name) not in self.objects:
            raise ApiError(404, f'{kind.lower()}s "{name}" not found')
        return self.objects[kind, name]

    def _pod_name(self, worker: str, attempt: int) -> str:
        for (kind, name), found in self.objects.items():
            labels = found["metadata"].get("labels", {})
            wanted = {"launchpad/worker": worker, "launchpad/attempt": str(attempt)}
            if kind == "Pod" and wanted.items() <= labels.items():
                return name
        return ""

    def _note(self, change: str, found: Manifest) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, change, copy.deepcopy(found)))
        self._changed.notify_all()


class Account:
    """The cluster as somebody sees it whose rights are the rules of a Role.

    Attributes:
      used: The rights that were used: (verb, API group, resource).
    """

    def __init__(self, cluster: FakeCluster, rules: Sequence[Manifest]) -> None:
        self._cluster = cluster
        self._rules = rules
        self.namespace = cluster.namespace
        self.used: set[tuple[str, str, str]] = set()

    def create(self, manifest: Manifest) -> Manifest:
        self._use("create", manifest["kind"])
        return self._cluster.create(manifest)

    def read(self, kind: str, name: str) -> Manifest:
        self._use("get", kind, name)
        return self._cluster.read(kind, name)

    def secret(self, name: str) -> dict[str, bytes]:
        self._use("get", "Secret", name)
        return self._cluster.secret(name)

    def delete(self, kind: str, name: str, **options: Any) -> None:
        self._use("delete", kind, name)
        self._cluster.delete(kind, name, **options)

    def patch(self, kind: str, name: str, metadata: Mapping[str, Any]) -> None:
        self._use("patch", kind, name)
        self._cluster.patch(kind, name, metadata)

    def list(self, kind: str, selector: str) -> tuple[list[Manifest], str]:
        self._use("list", kind)
        return self._cluster.list(kind, selector)

    def warnings(self, kind: str, name: str = "") -> Sequence[Manifest]:
        self._use("list", "Event")
        return self._cluster.warnings(kind, name)

    def watch(self, kind: str, selector: str, version: str) -> Iterator[tuple[str, Manifest]]:
        self._use("watch", kind)
        return self._cluster.watch(kind, selector, version)

    def log(self, pod: str, since: str = "", *, follow: bool = True) -> Iterator[bytes]:
        self._use("get", "Pod/log", pod)
        return self._cluster.log(pod, since, follow=follow)

    def rules(self) -> Sequence[Manifest]:
        return self._rules

    def may(self, verb: str, kind: str) -> bool:
        return self._may(verb, kind)

    def close(self) -> None:
        self._cluster.close()

    def _use(self, verb: str, kind: str, name: str = "") -> None:
        if not self._may(verb, kind, name):
            raise ApiError(
                403, f"{kind.lower()}s {name!r} is forbidden: no rule lets you {verb} it"
            )
        self.used.add((verb, *resource_of(kind)))

    def _may(self, verb: str, kind: str, name: str = "") -> bool:
        group, resource = resource_of(kind)
        return any(
            verb in rule["verbs"]
            and group in rule["apiGroups"]
            and resource in rule["resources"]
            and (not rule.get("resourceNames") or name in rule["resourceNames"])
            for rule in self._rules
        )


def _state(pod: Manifest) -> Mapping[str, Any]:
    containers = pod.get("status", {}).get("containerStatuses") or [{}]
    state: Mapping[str, Any] = containers[0].get("state", {})
    return state


def _fits(found: Manifest, selector: str) -> bool:
    labels = found["metadata"].get("labels", {})
    return all(
        labels.get(name) == value
        for name, _, value in (part.partition("=") for part in selector.split(","))
    )
