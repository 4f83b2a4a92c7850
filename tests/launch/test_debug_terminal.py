"""The worker's end of the terminal of `launchpad attach`."""

from __future__ import annotations

import socket

import pytest

from launchpad.launch.worker.debug_terminal import DebugTerminal


def test_last_words_are_shown_though_the_reader_leaves_as_soon_as_the_terminal_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        terminal = DebugTerminal(ours)

        class LinesOfAQuickReader:
            def put(self, line: str) -> None:
                ours.shutdown(socket.SHUT_RDWR)  # what the reader does when it gets an empty line

        monkeypatch.setattr(terminal, "_lines", LinesOfAQuickReader())

        terminal.close("player-0 stops\n")

        assert theirs.recv(100) == b"player-0 stops\n"
