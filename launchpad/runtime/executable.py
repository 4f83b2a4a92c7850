"""Executable: a node made runnable, the same for all backends.

in the launcher     node.to_executable()            data: constructor, arguments, options
in the worker       unpickled: handles are clients, Deferreds are built           phase `import`, `init`
                    run = executable.open()         constructs, serves            phase `init`
                    run()                           or serve(stop)                phase `run`
                    executable.save()               before a restart only         phase `stop`
                    executable.release()            after a clean end             phase `stop`
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
"""A function that runs the user's function, and returns its result."""


class Executable(abc.ABC):
    """A worker's work. It is pickled in the launcher, and opened, run and closed in the worker.

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
        """Build what the node describes, and return what to run, or None to serve until the stop."""

    def serve(self, stop: threading.Event) -> None:
        """Serve until `stop` is set. Called in the thread of `open`, if there is nothing to run."""
        stop.wait()

    def save(self) -> None:
        """Save the state. Called before `close` if the worker was stopped in order to be started again."""
        return

    def release(self) -> None:
        """Release what user code holds: call the functions given to `lp.on_exit`.

        Called after `save` and before `close`, if the attempt ends cleanly.
        """
        loop = EventLoop(context.current().name)
        try:
            user_code.call_exit_handlers(loop)
        finally:
            loop.close()

    def abandon(self) -> None:
        """Stop serving at once, without waiting for running calls. Called from any thread."""
        return

    def close(self) -> None:
        """Undo `open`. Called once, however the run ended."""
        return


@dataclass(frozen=True)
class Code:
    """A function or class on its way to a worker.

    Many nodes share one constructor. Classes of the launching script are pickled by value, which is slow.
    Wrapped in Code, they are pickled only once per plan.
    """

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        """The name of the function or class in the source, `Learner`."""
        return user_code.name_of(self.function)
