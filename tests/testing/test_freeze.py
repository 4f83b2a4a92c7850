"""Workers that are stuck or slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

import launchpad as lp
from launchpad.testing import freeze, throttle
from tests import nodes
from tests.helpers.programs import single
from tests.waiting import until

DEADLINE_S = 30


def test_no_thread_of_a_frozen_worker_runs_and_afterwards_it_goes_on_or_ends() -> None:
    running = lp.launch(single(lp.CourierNode(nodes.Counter), "server"), "test_mp")
    client: Any = running.client("server")
    assert client.add(0) == 0
    tasks = Path(f"/proc/{running.status()[0].pid}/task")

    with freeze(running, "server-0"):
        states = [stat.read_text().rpartition(") ")[2][0] for stat in tasks.glob("*/stat")]
        late = client.futures.add(0)
        with pytest.raises(lp.courier.DeadlineExceeded):
            client.with_options(timeout_s=0.2).add(0)
        assert not late.done()
    assert late.result(DEADLINE_S) == 0
    for _ in range(20):
        with freeze(running, "server-0"):
            states += [stat.read_text().rpartition(") ")[2][0] for stat in tasks.glob("*/stat")]
    with freeze(running, "server-0"):
        running.stop(at_once=True)

    assert set(states) == {"T"}
    assert running.is_done


def test_a_slow_worker_is_stopped_again_and_again_and_runs_on_afterwards() -> None:
    with lp.launch(single(lp.CourierNode(nodes.Counter), "server"), "test_mp") as running:
        client: Any = running.client("server")
        assert client.add(0) == 0
        pid = running.status()[0].pid
        assert pid is not None
        process = psutil.Process(pid)

        with throttle(running, "server-0", share=0.5):
            for _ in range(3):
                until(lambda: process.status() == psutil.STATUS_STOPPED)
                until(lambda: process.status() != psutil.STATUS_STOPPED)
            assert client.add(0) == 0

        assert process.status() != psutil.STATUS_STOPPED
        assert client.add(0) == 0


@pytest.mark.parametrize(
    ("pause", "error", "why"),
    [
        (lambda it: freeze(it, "server-0"), RuntimeError, r"server-0 .* test_mp"),
        (lambda it: throttle(it, "server-0"), RuntimeError, r"server-0 .* test_mp"),
        (lambda it: freeze(it, "sever-0"), KeyError, r"'sever-0'.*server-0"),
        (lambda it: throttle(it, "server-0", share=1.0), ValueError, "between 0 and 1"),
    ],
    ids=["a thread", "a thread that is to be slow", "no worker", "no share"],
)
def test_what_cannot_be_stopped_is_refused(pause: Any, error: type[Exception], why: str) -> None:
    with (
        lp.launch(single(lp.CourierNode(nodes.Counter), "server"), "test_mt") as running,
        pytest.raises(error, match=why),
        pause(running),
    ):
        pass
