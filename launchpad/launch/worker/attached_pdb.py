"""pdb for a worker's thread. The thread goes on when the user leaves pdb, or the terminal is lost."""

from __future__ import annotations

import pdb
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Any

from launchpad.launch.worker.debug_terminal import DebugTerminal
from launchpad.runtime.user_code import is_of_user


class AttachedPdb(pdb.Pdb):
    """A pdb for one thread: the thread that calls its methods.

    Args:
        standing: Returns a context that is entered while the thread is stopped in the debugger.

    Attributes:
        has_quit: True if the user has left pdb with a command.
    """

    def __init__(
        self, terminal: DebugTerminal, standing: Callable[[], AbstractContextManager[None]]
    ):
        # The terminal has the methods of a stream that pdb uses.
        stream: Any = terminal
        ours = ["launchpad", "launchpad.*"]
        # Read no .pdbrc, because pdb would also run one in the worker's current directory, which may be
        # anyone's.
        super().__init__(stdin=stream, stdout=stream, skip=ours, nosigint=True, readrc=False)
        self.has_quit = False
        self._terminal = terminal
        self._standing = standing
        self._stands = False
        self._is_tracing = False

    @property
    def is_left(self) -> bool:
        """True once the terminal is gone, or the user has left pdb."""
        return self._terminal.is_closed

    def interrupt(self, frame: FrameType) -> None:
        """Stop at this frame, in its thread, until the user lets it go on."""
        if self._stands or self._terminal.is_closed:
            return
        self._is_tracing = True
        self.set_trace(frame)
        sys.settrace(None)  # pdb itself must not be traced
        self.interaction(frame, None)
        if self._is_tracing:
            sys.settrace(self.trace_dispatch)

    def post_mortem(self, error: BaseException) -> None:
        """Stop where the error was raised, until the user leaves."""
        self.reset()
        if sys.version_info >= (3, 13):
            self.interaction(None, error)
        else:
            self.interaction(None, error.__traceback__)

    def interaction(self, frame: FrameType | None, *about: Any) -> None:
        with self._standing():
            self._stands = True
            try:
                super().interaction(frame, *about)
            finally:
                self._stands = False

    def get_stack(
        self, f: FrameType | None, t: TracebackType | None
    ) -> tuple[list[tuple[FrameType, int]], int]:
        """Return the stack from the user's first frame on, and the index of the user's innermost frame."""
        stack, index = super().get_stack(f, t)
        user_indices = [
            i for i, (frame, _) in enumerate(stack) if is_of_user(frame.f_code.co_filename)
        ]
        if not user_indices:
            return stack, index
        return stack[user_indices[0] :], user_indices[-1] - user_indices[0]

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self._terminal.is_closed:
            self._leave()
            return None
        return super().trace_dispatch(frame, event, arg)

    def set_continue(self) -> None:
        super().set_continue()
        self._is_tracing = bool(self.breaks)

    def do_quit(self, arg: str) -> bool:
        """q(uit) | exit.

        Leave the debugger; the worker goes on, and one that has failed goes on to fail.
        """
        self.has_quit = True
        self._leave()
        return True

    do_q = do_quit
    do_exit = do_quit

    def do_EOF(self, arg: str) -> bool:  # noqa: N802 - the name is pdb's
        """Go on without the terminal, which is gone. A worker that has failed waits for another terminal."""
        self._leave()
        return True

    def do_run(self, arg: str) -> None:
        """Refer to `launchpad restart`, which restarts a worker."""
        self.message("a worker is started again by `launchpad restart`")

    do_restart = do_run

    def _leave(self) -> None:
        self.clear_all_breaks()
        self.set_continue()
        self._terminal.close()
