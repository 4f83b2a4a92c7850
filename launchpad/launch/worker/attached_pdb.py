"""pdb for a worker's thread, which goes on when it is left, and when its terminal is lost."""

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
    """Stands in one thread, the one that calls its methods.

    Args:
        standing: Entered while the thread stands in the debugger.

    Attributes:
        has_quit: Whether the user has left it by a command.
    """

    def __init__(
        self, terminal: DebugTerminal, standing: Callable[[], AbstractContextManager[None]]
    ):
        # The streams are those of a terminal as far as pdb uses them.
        stream: Any = terminal
        ours = ["launchpad", "launchpad.*"]
        # No .pdbrc: pdb would run also the one in the worker's current directory, whose ever that is.
        super().__init__(stdin=stream, stdout=stream, skip=ours, nosigint=True, readrc=False)
        self.has_quit = False
        self._terminal, self._standing = terminal, standing
        self._stands = self._is_tracing = False

    @property
    def is_left(self) -> bool:
        """True once its terminal is gone, or the user has left it."""
        return self._terminal.is_closed

    def interrupt(self, frame: FrameType) -> None:
        """Stands at this frame, in its thread, until a command goes on."""
        if self._stands or self._terminal.is_closed:
            return
        self._is_tracing = True
        self.set_trace(frame)
        sys.settrace(None)  # pdb itself is not to be traced
        self.interaction(frame, None)
        if self._is_tracing:
            sys.settrace(self.trace_dispatch)

    def post_mortem(self, error: BaseException) -> None:
        """Stands where the error was raised, until it is left."""
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
        """Begins where the user's code does; the cursor is at the innermost of that."""
        stack, index = super().get_stack(f, t)
        theirs = [i for i, (frame, _) in enumerate(stack) if is_of_user(frame.f_code.co_filename)]
        if not theirs:
            return stack, index
        return stack[theirs[0] :], theirs[-1] - theirs[0]

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

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool:  # noqa: N802 - the name is pdb's
        """The terminal is gone: the worker goes on, and one that has failed waits for another one."""
        self._leave()
        return True

    def do_run(self, arg: str) -> None:
        """Not here: `launchpad restart` starts a worker again."""
        self.message("a worker is started again by `launchpad restart`")

    do_restart = do_run

    def _leave(self) -> None:
        self.clear_all_breaks()
        self.set_continue()
        self._terminal.close()
