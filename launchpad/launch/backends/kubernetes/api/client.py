"""A cluster: the requests to its API that launchpad needs. Objects are plain dicts; tests use a fake.

The package `kubernetes` reads the kubeconfig, or the service account of this process's pod, and
authenticates. The package's models aren't used.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from launchpad.courier import extras
from launchpad.errors import LaunchError

_log = logging.getLogger("launchpad.kubernetes")

T = TypeVar("T")
_Other = TypeVar("_Other")
Manifest = dict[str, Any]

CONTAINER = "worker"
"""The name of a worker's container in its pod."""

_RETRYABLE = (0, 429, 500, 502, 503, 504)
"""Statuses of a cluster that doesn't answer, is busy, or is restarting."""

_UNREACHABLE_S = 60.0
_ANSWER_S = 30.0
_SILENCE_S = 600.0
"""Seconds without a line after which a log is requested again, in case a proxy reads no more from its own
connection. There is a request for each pod, so they should be rare."""

_KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Options by which a kernel notices within a minute that a connection is dead, and by which proxies and
firewalls see that a silent connection is in use. Not every system has all of them."""

_WATCH_S = 240
"""How long the server keeps a watch open. After that, another watch continues at the same version."""

RBAC = "rbac.authorization.k8s.io"
_REVIEWS = "authorization.k8s.io"
_GROUPS = {
    "Job": "batch",
    "Role": RBAC,
    "RoleBinding": RBAC,
    "SelfSubjectRulesReview": _REVIEWS,
    "SelfSubjectAccessReview": _REVIEWS,
}
"""The API groups of kinds outside the core. All have version v1."""

_JSON = "application/json"
_MERGE = "application/merge-patch+json"


class ClusterError(Exception):
    """A request has failed. `status` is the HTTP status, or 0 if there was no answer."""

    status = 0

    @property
    def is_retryable(self) -> bool:
        """True if the same request may succeed later."""
        return self.status in _RETRYABLE


class ApiError(ClusterError):
    """The cluster has refused a request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Unreachable(ClusterError):
    """The cluster has not answered."""


class RetryWindow:
    """A time limit for a caller that repeats a request while the cluster is unreachable or busy."""

    _failing_since: float | None = None

    def call(self, call: Callable[[], T], otherwise: _Other) -> T | _Other:
        """Return the result of a call, or `otherwise` while calls have failed for less than a minute.

        Raises:
            ApiError: the cluster has refused, and another try would not help; or it was busy for a minute.
            Unreachable: it has not answered for a minute.
        """
        try:
            answer = call()
        except ClusterError as error:
            since = self._failing_since or time.monotonic()
            self._failing_since = since
            if not error.is_retryable or time.monotonic() - since > _UNREACHABLE_S:
                raise
            return otherwise
        self._failing_since = None
        return answer


def resource_of(kind: str) -> tuple[str, str]:
    """Return the API group and resource of a kind, as in a Role: for `Pod/log` "" and "pods/log"."""
    kind, slash, subresource = kind.partition("/")
    return _GROUPS.get(kind, ""), f"{kind.lower()}s{slash}{subresource}"


class Cluster:
    """The cluster of $KUBECONFIG or ~/.kube/config; inside a pod, the pod's own.

    Methods may be called from any thread. Each raises ApiError or Unreachable.

    Raises:
        LaunchError: the package is missing, or no cluster is configured.
    """

    def __init__(self, namespace: str = "") -> None:
        client, default = _make_client()
        self._configuration: Any = client.configuration
        self._pool: Any = client.rest_client.pool_manager
        self._streams: set[Any] = set()
        self._is_closed = False
        self._close = getattr(client, "close", lambda: None)
        self.namespace = namespace or default

    def create(self, manifest: Manifest) -> Manifest:
        """Create an object, and return it as the cluster has it."""
        return self._call("POST", manifest["kind"], body=manifest)

    def read(self, kind: str, name: str) -> Manifest:
        """Return an object. Raise ApiError with 404 if it doesn't exist."""
        assert name, "without a name it would be all of them"
        return self._call("GET", kind, name)

    def secret(self, name: str) -> dict[str, bytes]:
        """Return the files of a Secret. Raise ApiError with 404 if it doesn't exist."""
        data = self._call("GET", "Secret", name).get("data") or {}
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
        """Delete an object, if it exists.

        Args:
            uid: Delete only the object with this uid. Raise ApiError with 409 if the object has another uid.
        """
        assert name, "without a name it would be all of them"
        body: dict[str, Any] = {"propagationPolicy": policy}
        if grace_s is not None:
            body["gracePeriodSeconds"] = int(grace_s)
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            self._call("DELETE", kind, name, body=body)
        except ApiError as error:
            if error.status != 404:
                raise

    def patch(self, kind: str, name: str, metadata: Mapping[str, Any]) -> None:
        """Merge this into an object's metadata: `{"annotations": {…}}`, `{"ownerReferences": […]}`."""
        assert name, "without a name it would be all of them"
        self._call("PATCH", kind, name, body={"metadata": dict(metadata)}, content=_MERGE)

    def list(self, kind: str, selector: str) -> tuple[list[Manifest], str]:
        """Return the objects with these labels, and the version from which a watch continues."""
        answer = self._call("GET", kind, query={"labelSelector": selector})
        return answer["items"] or [], answer["metadata"]["resourceVersion"]

    def warnings(self, kind: str, name: str = "") -> Sequence[Manifest]:
        """Return the Events that warn about an object, or about all objects of this kind, in any order."""
        about = f"type=Warning,involvedObject.kind={kind}"
        if name:
            about += f",involvedObject.name={name}"
        answer = self._call("GET", "Event", query={"fieldSelector": about})
        events: Sequence[Manifest] = answer["items"] or ()
        return events

    def watch(self, kind: str, selector: str, version: str) -> Iterator[tuple[str, Manifest]]:
        """Yield changes of objects: (ADDED, MODIFIED or DELETED, object). A watch ends now and then.

        Raises:
            ApiError: with status 410 if too much has changed since that version. Then list the objects again.
        """
        query = {
            "labelSelector": selector,
            "resourceVersion": version,
            "watch": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        for line in self._lines(kind, "", query, _WATCH_S + _ANSWER_S):
            event = _parsed(line)
            if event["type"] == "ERROR":
                status = event["object"]
                raise ApiError(int(status.get("code", 500)), str(status.get("message", status)))
            yield event["type"], event["object"]

    def log(self, pod: str, since: str = "", *, follow: bool = True) -> Iterator[bytes]:
        """Yield the lines of a worker's container as they are written, each after its timestamp.

        Args:
            since: A timestamp. The log starts with the second of this timestamp.
            follow: If False, yield only the lines that were written so far.
        """
        query = {"timestamps": "true", "container": CONTAINER}
        if follow:
            query["follow"] = "true"
        if since:
            query["sinceTime"] = since
        timeout_s = _SILENCE_S if follow else _ANSWER_S
        yield from self._lines("Pod/log", pod, query, timeout_s)

    def rules(self) -> Sequence[Manifest]:
        """Return this user's rights as rules of a Role. They may be incomplete: `may` checks the rest.

        The list is empty if another authorizer is involved, because that may deny requests, too.
        """
        review = self._review("SelfSubjectRulesReview", {"namespace": self.namespace})
        return [] if review.get("incomplete") else review.get("resourceRules") or []

    def may(self, verb: str, kind: str) -> bool:
        """Return True if this user may use `verb` on objects of this kind; `Pod/log` is the log of a pod."""
        group, resource = resource_of(kind)
        resource, _, subresource = resource.partition("/")
        attributes = {
            "namespace": self.namespace,
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
        }
        review = self._review("SelfSubjectAccessReview", {"resourceAttributes": attributes})
        return bool(review["allowed"])

    def close(self) -> None:
        """End all reads, in whatever threads they are, and close all connections."""
        self._is_closed = True
        for response in list(self._streams):
            with contextlib.suppress(OSError, AttributeError):  # the read has just ended
                response.connection.sock.shutdown(socket.SHUT_RDWR)
        self._pool.clear()
        self._close()

    def _review(self, kind: str, spec: Manifest) -> Manifest:
        review = {"apiVersion": f"{_REVIEWS}/v1", "kind": kind, "spec": spec}
        status: Manifest = self.create(review)["status"]
        return status

    def _call(self, method: str, kind: str, name: str = "", **options: Any) -> Manifest:
        return _parsed(b"".join(_stream(self._request(method, kind, name, **options))))

    def _lines(
        self, kind: str, name: str, query: Mapping[str, str], timeout_s: float
    ) -> Iterator[bytes]:
        partial = b""
        response = self._request("GET", kind, name, query=query, timeout_s=timeout_s)
        try:
            # Add first, then check. `close` first sets the flag, and then ends all responses that were added.
            # So no response escapes both.
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
        kind: str,
        name: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = _JSON,
        timeout_s: float = _ANSWER_S,
    ) -> Any:
        """Return the response to a request. `Pod/log` is the log of a pod; no name means all objects."""
        import urllib3

        if self._is_closed:
            raise Unreachable("the connection to the cluster was closed")
        try:
            logins = self._configuration.auth_settings().values()
        except Exception as error:  # a login plugin may be any program
            raise Unreachable(f"cannot log in: {type(error).__name__}: {error}") from error
        group, resource = resource_of(kind)
        resource, _, subresource = resource.partition("/")
        api = f"/apis/{group}/v1" if group else "/api/v1"
        namespace = "" if group == _REVIEWS else f"namespaces/{quote(self.namespace)}"
        path = "/".join(filter(None, (api, namespace, resource, quote(name), subresource)))
        _log.debug("%s %s", method, path)
        login = {entry["key"]: entry["value"] for entry in logins if entry.get("in") == "header"}
        try:
            response = self._pool.request(
                method,
                self._configuration.host + path + (f"?{urlencode(query)}" if query else ""),
                body=None if body is None else json.dumps(body).encode(),
                headers={"Accept": _JSON, "Content-Type": content, **login},
                preload_content=False,
                timeout=urllib3.Timeout(connect=_ANSWER_S, read=timeout_s),
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            _log.debug("%s %s: no answer: %s", method, path, error)
            raise Unreachable(f"{self._configuration.host} does not answer: {error}") from error
        if response.status >= 400:
            data = b"".join(_stream(response))
            try:
                reason = str(json.loads(data)["message"])
            except (ValueError, KeyError, TypeError):
                reason = data.decode(errors="replace").strip() or "no reason given"
            _log.debug("%s %s: status %d, %s", method, path, response.status, reason)
            raise ApiError(response.status, reason)
        return response


def _parsed(text: bytes) -> Manifest:
    try:
        answer: Manifest = json.loads(text)
    except ValueError as error:
        raise Unreachable(
            f"this is no answer of a cluster, or was cut off: {text[:200]!r}"
        ) from error
    return answer


def _stream(response: Any) -> Iterator[bytes]:
    import urllib3

    try:
        yield from iter(response.read1, b"")
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"the cluster has closed the connection: {error}") from error


def _make_client() -> tuple[Any, str]:
    """Return a client of the package `kubernetes`, and the default namespace.

    All its connections share one SSL context. Otherwise each would read the certificates from files.
    """
    try:
        from kubernetes import client
        from kubernetes import config as untyped
    except ImportError as error:
        raise LaunchError(
            f"launch type 'kubernetes' needs the package kubernetes, which cannot be imported here"
            f" ({error}): {extras.install_command('kubernetes')}"
        ) from error
    config: Any = untyped
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = 1000
    try:
        config.load_kube_config(client_configuration=configuration)
        _, context = config.list_kube_config_contexts()
        namespace = context["context"].get("namespace", "default")
    except config.ConfigException as not_here:
        try:
            config.load_incluster_config(client_configuration=configuration)
            with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
                namespace = file.read().strip()
        except (config.ConfigException, OSError):
            raise LaunchError(
                f"no Kubernetes cluster is known here: {not_here}. Set KUBECONFIG, or see whether"
                " `kubectl get pods` works"
            ) from not_here
    ssl_context = _SharedSslContext(ssl.PROTOCOL_TLS_CLIENT)
    if not configuration.verify_ssl:
        import urllib3

        # insecure-skip-tls-verify was the user's choice, so don't warn at each request.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        ssl_context.check_hostname = False
        ssl_context.verify_mode = ssl.CERT_NONE
    elif configuration.ssl_ca_cert:
        ssl_context.load_verify_locations(configuration.ssl_ca_cert)
    else:
        ssl_context.load_default_certs()
    if configuration.cert_file:
        ssl_context.load_cert_chain(configuration.cert_file, configuration.key_file)
    api_client = client.ApiClient(configuration)
    pool_options = api_client.rest_client.pool_manager.connection_pool_kw
    for name in ("ca_certs", "ca_cert_data", "cert_file", "key_file"):
        pool_options.pop(name, None)
    pool_options["ssl_context"] = ssl_context
    pool_options["socket_options"] = _socket_options()
    return api_client, namespace


def _socket_options() -> list[tuple[int, int, int]]:
    available = {name: value for name, value in _KEEPALIVE.items() if hasattr(socket, name)}
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in available.items()),
    ]


class _SharedSslContext(ssl.SSLContext):
    """A context that many threads share, so that connections must not change it (python/cpython#134698)."""

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        """Do nothing. Each connection would set HTTP/1.1, which is the default."""
