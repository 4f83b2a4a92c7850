"""A look at the cluster before Ray connects to it, so that a mistake is named within seconds.

Ray itself takes minutes to find out that nothing listens at an address. It tries twenty times if its token is
refused, aborts the process if it has no token to send, and looks for a minute for its node on this machine.

The token is in RAY_AUTH_TOKEN, in the file that RAY_AUTH_TOKEN_PATH names, or in ~/.ray/auth_token. If the
user has given the cluster's address, Ray sends the token only if RAY_AUTH_MODE is `token`, although
`ray start --head` protects a cluster without that. So a cluster easily has a token that its users don't send.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import Any

from launchpad.errors import LaunchError

_log = logging.getLogger("launchpad.ray")

_MODE = "RAY_AUTH_MODE"
_TOKEN = "RAY_AUTH_TOKEN"
_TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"

_CONNECT_S = 5.0


def check(ray: Any, address: str) -> None:
    """Check that a Ray cluster at this address lets this process in, and has a node on this machine.

    Args:
        ray: The package.
        address: HOST:PORT. Others, such as `auto`, are not checked.

    Raises:
        LaunchError: one of these is not so.
    """
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not port.isdigit():
        return
    where = f"RAY_ADDRESS={address}"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S):
            pass
    except ConnectionRefusedError:
        raise LaunchError(
            f"no Ray cluster could be used at {where}: nothing listens there. Start one there with"
            " `ray start --head`, or unset RAY_ADDRESS to have one started on this machine"
        ) from None
    except OSError as error:
        raise LaunchError(
            f"no Ray cluster could be used at {where}: {error}. Is that host up, and may this machine reach"
            f" its port {port}?"
        ) from None
    _check_token(where)
    try:
        nodes = ray._raylet.GcsClient(address=f"{host}:{port}").get_all_node_info().values()
    except (AttributeError, TypeError) as error:
        # This part of Ray is private, and another version may not have it. Ray then finds mistakes itself.
        _log.debug("no look at the Ray cluster: %s", error)
        return
    except Exception as error:
        if is_refusal(error):
            raise refusal(where) from None
        text = str(error).strip().split("\n")[0].rstrip(".")
        raise LaunchError(
            f"no Ray cluster could be used at {where}: what listens there does not answer as Ray does"
            f" ({text}). Give the address that `ray start --head` has printed"
        ) from None
    if not any(_is_here(node.raylet_socket_name) for node in nodes):
        raise LaunchError(
            f"the Ray cluster at {where} has no node on this machine, so that its workers could not reach"
            " this process. Run the script on one of the cluster's machines, or make this machine one of"
            f" them: `ray start --address={host}:{port}`"
        )


def is_refusal(error: BaseException) -> bool:
    """Return True if an error of Ray's says that the cluster wants another token than this process sends."""
    # Ray raises an AuthenticationError, or an error whose cause quotes it.
    return any("InvalidAuthToken" in str(each) for each in (error, error.__cause__))


def refusal(where: str) -> LaunchError:
    """Return the error that says why the cluster has refused this process, and what to do."""
    why = f"it wants a token, and Ray sends none unless {_MODE}=token. Set that, and {_remedy()}"
    if _is_on():
        source = f"${_TOKEN}" if os.environ.get(_TOKEN) else str(_token_file())
        why = f"its token is not the one in {source}. To use it, {_remedy()}"
    return LaunchError(f"the Ray cluster at {where} has not let this process in: {why}")


def _check_token(where: str) -> None:
    if _is_on() and not os.environ.get(_TOKEN) and not _token_file().is_file():
        raise LaunchError(
            f"the Ray cluster at {where} cannot be used: {_MODE} is 'token', and there is no token here."
            f" To have one, {_remedy()}"
        )


def _is_on() -> bool:
    return os.environ.get(_MODE, "").lower() == "token"


def _token_file() -> Path:
    return Path(os.environ.get(_TOKEN_PATH) or "~/.ray/auth_token").expanduser()


def _remedy() -> str:
    copy = f"copy ~/.ray/auth_token of the cluster's head node to {_token_file()} on this machine"
    # Ray looks there first.
    return f"{copy}, and unset {_TOKEN}" if os.environ.get(_TOKEN) else copy


def _is_here(raylet_socket: str) -> bool:
    """Return True if something on this machine listens at a node's socket, which is named alike on all."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(raylet_socket)
        except OSError:
            return False
    return True
