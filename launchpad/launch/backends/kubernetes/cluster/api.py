"""The API of a real cluster, as far as it is needed.

The package `kubernetes` reads the kubeconfig, or the account of the pod that this runs in, and knows how to
log in; its models are left alone.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from launchpad.launch.backends.kubernetes.cluster import login
from launchpad.launch.backends.kubernetes.cluster.cluster import (
    CONTAINER,
    Manifest,
    Refused,
    Unreachable,
)

_LOG = {"timestamps": "true", "container": CONTAINER}

_ANSWER_S = 30.0
_SILENCE_S = 60.0
"""After so long without a line a log is asked for again: what lies between may have forgotten us."""

_WATCH_S = 240
"""How long the server keeps a watch open; then another one goes on where it was."""

_PATHS = {
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Event": "/api/v1/namespaces/{namespace}/events",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
}
_JSON, _MERGE = "application/json", "application/merge-patch+json"
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
"""Of Secrets nothing else is looked at, and they are large."""


def resource_of(kind: str) -> tuple[str, str]:
    """The API group and the resource of a kind, as a Role names them: of `Pod/log` "" and "pods/log"."""
    kind, slash, subresource = kind.partition("/")
    path = _PATHS[kind]
    group = path.split("/")[2] if path.startswith("/apis/") else ""
    return group, path.rpartition("/")[2] + slash + subresource


class Api:
    """A real cluster: the one of $KUBECONFIG, or ~/.kube/config; within a pod the one around it.

    Raises:
      LaunchError: the package is missing, or there is no cluster that is known.
    """

    def __init__(self, namespace: str = "") -> None:
        client, default = login.log_in()
        self._configuration: Any = client.configuration
        self._pool: Any = client.rest_client.pool_manager
        self._streams: set[Any] = set()
        self._is_closed = False
        self._close = getattr(client, "close", lambda: None)
        self.namespace = namespace or default

    def create(self, manifest: Manifest) -> Manifest:
        """Makes an object; what it has become."""
        made: Manifest = self._asked("POST", self._path(manifest["kind"]), body=manifest)
        return made

    def read(self, kind: str, name: str) -> Manifest:
        """An object; Refused with 404 if there is none."""
        assert name, "without a name it would be all of them"
        accept = _METADATA.format("") if kind == "Secret" else _JSON
        found: Manifest = self._asked("GET", self._path(kind, name), accept=accept)
        return found

    def delete(
        self, kind: str, name: str, *, policy: str = "Background", grace_s: float | None = None
    ) -> None:
        """Deletes an object; one that is not there is passed over."""
        assert name, "without a name it would be all of them"
        body: dict[str, Any] = {"propagationPolicy": policy}
        if grace_s is not None:
            body["gracePeriodSeconds"] = int(grace_s)
        try:
            self._asked("DELETE", self._path(kind, name), body=body)
        except Refused as refused:
            if refused.status != 404:
                raise

    def annotate(self, pod: str, annotations: Mapping[str, str]) -> None:
        """Sets annotations of a pod."""
        body = {"metadata": {"annotations": dict(annotations)}}
        self._asked("PATCH", self._path("Pod", pod), body=body, content=_MERGE)

    def give(self, secret: str, owners: Sequence[Mapping[str, Any]]) -> None:
        """Sets what a Secret belongs to."""
        body = {"metadata": {"ownerReferences": list(owners)}}
        self._asked("PATCH", self._path("Secret", secret), body=body, content=_MERGE)

    def list(self, kind: str, selector: str) -> tuple[list[Manifest], str]:
        """Those with these labels, and the version from which a watch goes on."""
        accept = _METADATA.format("List") if kind == "Secret" else _JSON
        found = self._asked("GET", self._path(kind), {"labelSelector": selector}, accept=accept)
        return found["items"] or [], found["metadata"]["resourceVersion"]

    def events(self, kind: str, name: str) -> Sequence[Manifest]:
        """What the cluster has noted about an object."""
        about = f"involvedObject.kind={kind},involvedObject.name={name}"
        found = self._asked("GET", self._path("Event"), {"fieldSelector": about})
        items: Sequence[Manifest] = found["items"]
        return items

    def watch(self, kind: str, selector: str, version: str) -> Iterator[tuple[str, Manifest]]:
        """What happens to them; it ends now and then."""
        query = {
            "labelSelector": selector,
            "resourceVersion": version,
            "watch": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        for line in self._lines(self._path(kind), query, _WATCH_S + _ANSWER_S):
            event = _parsed(line)
            if event["type"] == "ERROR":
                status = event["object"]
                raise Refused(int(status.get("code", 500)), str(status.get("message", status)))
            yield event["type"], event["object"]

    def log(self, pod: str, since: str = "") -> Iterator[bytes]:
        """The lines of a worker's container as they come, each after the time when it was written."""
        query = {"follow": "true", **_LOG}
        if since:
            query["sinceTime"] = since
        yield from self._lines(self._path("Pod", pod) + "/log", query, _SILENCE_S)

    def printed(self, pod: str) -> Iterator[bytes]:
        """The same, of what is there now."""
        yield from self._lines(self._path("Pod", pod) + "/log", _LOG, _ANSWER_S)

    def rules(self) -> Sequence[Manifest]:
        """What this user may do; nothing if somebody else has a say in it, who may also deny."""
        told = self._reviewed("SelfSubjectRulesReview", {"namespace": self.namespace})
        rules: Sequence[Manifest] = told.get("resourceRules") or []
        return [] if told.get("incomplete") else rules

    def may(self, verb: str, kind: str) -> bool:
        """Whether this user may do that."""
        group, resource = resource_of(kind)
        resource, _, subresource = resource.partition("/")
        asked = {
            "namespace": self.namespace,
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
        }
        told = self._reviewed("SelfSubjectAccessReview", {"resourceAttributes": asked})
        return bool(told["allowed"])

    def close(self) -> None:
        """Ends what is being read, by whatever thread, and closes all connections."""
        self._is_closed = True
        for response in list(self._streams):
            with contextlib.suppress(OSError, AttributeError):  # it has just ended
                response.connection.sock.shutdown(socket.SHUT_RDWR)
        self._pool.clear()
        self._close()

    def _reviewed(self, kind: str, spec: Mapping[str, Any]) -> Any:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        path = f"/apis/authorization.k8s.io/v1/{kind.lower()}s"
        return self._asked("POST", path, body=review)["status"]

    def _path(self, kind: str, name: str = "") -> str:
        path = _PATHS[kind].format(namespace=quote(self.namespace))
        return f"{path}/{quote(name)}" if name else path

    def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = _JSON,
        accept: str = _JSON,
    ) -> Any:
        response = self._request(method, path, query, body, content, _ANSWER_S, accept)
        return _parsed(_whole(response))

    def _lines(self, path: str, query: Mapping[str, str], patience_s: float) -> Iterator[bytes]:
        partial = b""
        response = self._request("GET", path, query, None, _JSON, patience_s)
        try:
            self._streams.add(response)
            if self._is_closed:
                raise Unreachable("the connection to the cluster was closed")
            for data in _stream(response):
                *lines, partial = (partial + data).split(b"\n")
                yield from lines
            if partial:
                yield partial
        finally:
            self._streams.discard(response)
            response.close()

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content: str,
        patience_s: float,
        accept: str = _JSON,
    ) -> Any:
        import urllib3

        if self._is_closed:
            raise Unreachable("the connection to the cluster was closed")
        url = self._configuration.host + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "Content-Type": content, **self._login()}
        try:
            response = self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                preload_content=False,
                timeout=urllib3.Timeout(connect=_ANSWER_S, read=patience_s),
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"{self._configuration.host} does not answer: {error}") from error
        if response.status >= 400:
            raise Refused(response.status, _reason(_whole(response)))
        return response

    def _login(self) -> dict[str, str]:
        try:
            settings = self._configuration.auth_settings()
        except Exception as error:  # whatever logs in here may be a program of somebody else's
            raise Unreachable(f"cannot log in: {type(error).__name__}: {error}") from error
        return {
            each["key"]: each["value"] for each in settings.values() if each.get("in") == "header"
        }


def _whole(response: Any) -> bytes:
    return b"".join(_stream(response))


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Unreachable(f"what answers is no cluster, or was cut off: {text[:200]!r}") from error


def _stream(response: Any) -> Iterator[bytes]:
    import urllib3

    try:
        while data := response.read1():
            yield data
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"the cluster has closed the connection: {error}") from error


def _reason(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace").strip() or "no reason given"
