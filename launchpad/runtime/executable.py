"""Executable: a node made runnable, the same for all backends.

in the launcher     node.to_executable()            data: constructor, arguments, options
in the worker       unpickled: handles are clients, Deferreds are built           phase `import`, `init`
                    run = executable.open()         constructs, serves            phase `init`
                    run()                           or serve(stop)                phase `run`
                    executable.save()               before a restart only         phase `stop`
                    executable.release()            after an end in good order    phase `stop`
                    executable.close()              stops serving                 phase `stop`
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable
from typing import Any

from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.server.event_loop import EventLoop
from launchpad.runtime import context, user_code

Run = Callable[[], Any]
"""What runs the user's function, and returns what that has returned."""


class Executable(abc.ABC):
    """What a worker does. Pickled in the launcher, opened, run and closed in the worker.

    Example:
        class BoardExecutable(lp.Executable):
            def __init__(self, log_directory: str, address: lp.Address):
                self.log_directory, self.address = log_directory, address

            def open(self) -> None:
                self.board = serve(self.log_directory, self.address.resolve())

            def close(self) -> None:
                self.board.shutdown()
    """

    @abc.abstractmethod
    def open(self) -> Run | None:
        """Builds what the node describes, and returns what to run; None means: serve until the stop."""

    def serve(self, stop: threading.Event) -> None:
        """Called where there is nothing to run, in the thread of `open`; returns when `stop` is set."""
        stop.wait()

    def save(self) -> None:
        """Called before `close` when the worker was stopped in order to be started again."""
        return

    def release(self) -> None:
        """Lets go of what user code holds, by what was given to `lp.on_exit`.

        Called before `close`, and after `save`, when the attempt ends in good order.
        """
        loop = EventLoop(context.current().name)
        try:
            user_code.call_exit_handlers(loop)
        finally:
            loop.close()

    def abandon(self) -> None:
        """Stops serving at once, without waiting for calls that run. Called from any thread."""
        return

    def close(self) -> None:
        """Undoes `open`. Called once, however the run ended."""
        return


@dataclass(frozen=True)
class Code:
    """A function or class on its way to a worker.

    Many nodes share one constructor. Classes of the launching script travel by value, which is slow to
    pickle; wrapped in Code they are pickled once per plan.
    """

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        """Its name as in the source: `Learner`."""
        return user_code.name_of(self.function)
