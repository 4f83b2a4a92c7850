"""The connection of this process to a Ray cluster: the first launch makes it, the last closes it.

If the process is connected already (by `ray.init()` in the script, or as a worker of Ray's own), launches use
that connection and leave it as it is. A cluster that Ray starts ends with the thread that asked for it, so
launchpad uses a thread of its own.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from launchpad.courier import extras
from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import folder_of_script
from launchpad.launch.backends.ray import preflight
from launchpad.launch.planning import interpreter

_log = logging.getLogger("launchpad.ray")

NAMESPACE = "launchpad"
_NOT_SENT = [".git", ".env", ".ssh", ".venv", "venv", "node_modules", "__pycache__", "*.pyc"]

# Held while the connection is made or closed. Several threads may launch at once. Without the lock, two of
# them could both connect, or one could close the connection that another has just begun to use.
_lock = threading.Lock()
_users = 0
_ours: _RayConnection | None = None


# The pid of the process that used Ray first, and has Ray's threads.
_first_pid = functools.cache(os.getpid)


@dataclass(frozen=True)
class ClusterNode:
    """A node of the cluster that is alive, and its total resources."""

    id: str
    ip: str
    resources: dict[str, float]
    labels: dict[str, str] = field(default_factory=dict)


def load() -> Any:
    """Import and return the package `ray`.

    Raises:
        LaunchError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise LaunchError(
            f"launch type 'ray' needs Ray, which cannot be imported here ({error}):"
            f" {extras.install_command('ray')}"
        ) from error
    return ray


def connect() -> None:
    """Connect this process to the cluster at $RAY_ADDRESS, or to a new one, unless it is connected already.

    Raises:
        LaunchError: there is no cluster at that address, or no cluster could be started; this process was
            forked from a process that had used Ray; or it would be connected through Ray's client.
    """
    global _users, _ours
    ray = load()
    if _first_pid() != os.getpid():
        raise LaunchError(
            f"launch type 'ray' cannot be used in this process ({os.getpid()}): it was forked from one"
            f" ({_first_pid()}) that had used Ray, which does not survive that, and would hang. Start the"
            " process by spawn (multiprocessing.get_context('spawn'))"
        )
    with _lock:
        # Ray's client connects a process that is outside the cluster. That process and the workers could not
        # reach each other.
        address = os.environ.get("RAY_ADDRESS", "")
        if ray.util.client.ray.is_connected() or (
            address.startswith("ray://") and not ray.is_initialized()
        ):
            raise LaunchError(
                f"launch type 'ray' cannot be used through Ray's client ({address or 'ray://…'}), since this"
                " process would be outside of the cluster. Run the script on one of its machines, with"
                " `ray job submit` for instance, and RAY_ADDRESS=HOST:6379"
            )
        if _ours is None and not ray.is_initialized():
            interpreter.check_executable("Ray")
            _ours = _RayConnection()
        _users += 1


def release() -> None:
    """Undo one call of `connect`. The last release closes the connection that the first call opened."""
    global _users, _ours
    with _lock:
        _users -= 1
        if _users == 0 and _ours is not None:
            _ours.close()
            _ours = None


def check() -> None:
    """Raise LaunchError if this process was disconnected, because then Ray would start a new cluster."""
    if not load().is_initialized():
        raise LaunchError("this process has been disconnected, by ray.shutdown()")


def nodes() -> list[ClusterNode]:
    """Return the nodes of the cluster that are alive."""
    return [
        ClusterNode(
            node["NodeID"],
            node["NodeManagerAddress"],
            dict(node["Resources"]),
            dict(node.get("Labels") or {}),
        )
        for node in load().nodes()
        if node["Alive"]
    ]


def here() -> tuple[str, str]:
    """Return the id and the IP address of the node that this process is on."""
    ray = load()
    return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()


def project(folder: Path) -> dict[str, Any]:
    """Return the `runtime_env` with which Ray sends the user's code and launchpad to hosts that lack them."""
    package = Path(__file__).parents[3]
    return {"working_dir": str(folder), "py_modules": [str(package)], "excludes": _NOT_SENT}


class _RayConnection:
    """A connection that launchpad made, with the thread to which Ray ties a cluster that it starts."""

    def __init__(self) -> None:
        self._opened = Future[None]()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._hold, name="launchpad-ray", daemon=True)
        self._thread.start()
        error = self._opened.exception()
        if error is None:
            return
        self._thread.join()
        # Ray's errors have other errors as their causes, with dozens of lines of traceback.
        _log.debug("no connection to Ray", exc_info=error)
        address = os.environ.get("RAY_ADDRESS")
        first = str(error).strip().split("\n")[0]
        if isinstance(error, LaunchError):
            raise error
        if preflight.is_refusal(error):
            raise preflight.refusal(f"RAY_ADDRESS={address}") from None
        if address:
            why = (
                f"no Ray cluster could be used at RAY_ADDRESS={address}: {first}. Start one there with"
                " `ray start --head`, or unset RAY_ADDRESS to have one started on this machine"
            )
        else:
            why = f"no Ray could be started on this machine: {type(error).__name__}: {first}"
        raise LaunchError(why) from None

    def close(self) -> None:
        """Disconnect. This ends a cluster that Ray started for this connection."""
        self._is_over.set()
        self._thread.join()

    def _hold(self) -> None:
        try:
            self._connect()
        except BaseException as error:
            self._opened.set_exception(error)
        else:
            self._opened.set_result(None)
            self._is_over.wait()
        load().shutdown()

    def _connect(self) -> None:
        """Connect. If the cluster has other hosts, connect again, so that Ray sends the project to them.

        Without $RAY_ADDRESS, don't use a cluster that just happens to run on this machine: it may belong to
        another script, and end with that script.
        """
        address = os.environ.get("RAY_ADDRESS") or "local"
        preflight.check(load(), address)
        # Ray would warn that this isn't the main thread.
        logging.getLogger("ray").setLevel(logging.ERROR)
        init = partial(
            load().init,
            address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        init(runtime_env={})
        _, here_ip = here()
        if any(node.ip != here_ip for node in nodes()):
            load().shutdown()
            init(runtime_env=project(folder_of_script()))
