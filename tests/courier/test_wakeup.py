"""A thread that waits in `poll` is woken by another one."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from launchpad.courier.transport.stream_socket import WakeupSocketpair


@pytest.fixture
def wakeup() -> Iterator[WakeupSocketpair]:
    wakeup = WakeupSocketpair()
    yield wakeup
    wakeup.close()


def poll(wakeup: WakeupSocketpair, timeout_s: float) -> bool:
    poller = select.poll()
    poller.register(wakeup, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


@pytest.mark.parametrize("n", [1, 2, 10_000])  # more than a socket has room for
def test_once_drained_it_is_silent_until_it_is_woken_again(wakeup, n) -> None:
    for _ in range(3):
        for _ in range(n):
            wakeup.wake()
        assert poll(wakeup, 0)
        wakeup.drain()
        assert not poll(wakeup, 0)


def test_to_wake_a_closed_one_does_nothing(wakeup: WakeupSocketpair) -> None:
    wakeup.close()

    wakeup.wake()

    assert wakeup.fileno() == -1
