"""Settings with which debugpy, as VS Code starts it, debugs workers that are processes.

debugpy debugs the workers if it debugs the launching script.

To follow a script into a new process, debugpy rewrites the process's command, and has threads and a socket in
the process. The forkserver may have neither, so debugpy must leave it alone. Instead, a worker connects to
the script's adapter. The adapter tells the client (VS Code) that there is a process to attach to, as it does
for any other.

    script ══ adapter ══ client            attach: breakpoints
    worker ══════╝ ╚════ client            debugpyAttach, attach: breakpoints ──▶ import, run
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import sys
import threading
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any

from launchpad.courier.light_dataclass import dataclass

_CLIENT_S = 30.0
"""Seconds that a worker waits for the client to attach."""


@dataclass(frozen=True)
class DebugpySettings:
    """The address at which the adapter of the script's debugger waits for processes.

    Attributes:
        pid: The script's process.
        token: The secret that the adapter shows to a process that it debugs.
        client_token: The secret that a debugged process shows to the adapter.
    """

    on_host: str
    host: str
    port: int
    pid: int
    token: str | None = field(default=None, repr=False)
    client_token: str | None = field(default=None, repr=False)

    @classmethod
    def here(cls) -> DebugpySettings | None:
        """Read the settings; None if debugpy does not debug this process, or leaves children alone."""
        pydevd: Any = sys.modules.get("pydevd")
        if "debugpy" not in sys.modules or pydevd is None:
            return None
        try:
            setup = pydevd.SetupHolder.setup
            if pydevd.get_global_debugger() is None or not setup.get("multiprocess", True):
                return None
            host = setup.get("client") or "127.0.0.1"
            return cls(
                platform.node(),
                host,
                int(setup["port"]),
                os.getpid(),
                setup.get("access-token"),
                setup.get("client-access-token"),
            )
        except Exception:  # debugpy is another version
            return None

    def apply(self) -> None:
        """Have the client attach to this process, and wait until it has. Do nothing on another host."""
        if platform.node() != self.on_host:
            return
        try:
            debugpy: Any = importlib.import_module("debugpy")
            importlib.import_module("debugpy.server")  # makes pydevd importable
            pydevd: Any = importlib.import_module("pydevd")
            # Do this as `debugpy.connect` does, which has no parameter for the adapter's token.
            pydevd.settrace(
                host=self.host,
                port=self.port,
                suspend=False,
                wait_for_ready_to_run=False,
                block_until_connected=True,
                patch_multiprocessing=True,
                access_token=self.token,
                client_access_token=self.client_token,
                ppid=self.pid,
                dont_trace_start_patterns=(os.path.dirname(debugpy.__file__),),
            )
            waiting = threading.Timer(_CLIENT_S, debugpy.wait_for_client.cancel)
            waiting.daemon = True
            waiting.start()
            debugpy.wait_for_client()
            waiting.cancel()
        except Exception as error:
            print(
                f"debugpy does not debug this worker: {type(error).__name__}: {error}",
                file=sys.stderr,
            )


def unnoticed() -> AbstractContextManager[Any]:
    """Return a context in which debugpy leaves the commands of new processes as they are."""
    patches: Any = sys.modules.get("_pydev_bundle.pydev_monkey")
    skip = getattr(patches, "skip_subprocess_arg_patch", None)
    return contextlib.nullcontext() if skip is None else skip()
