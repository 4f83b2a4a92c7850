"""The death of a thread of launchpad's own is the end of the program, by name; it would hang without."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

import launchpad as lp
from launchpad.courier import own_threads
from launchpad.courier.own_threads import OwnThread
from tests.helpers import dying_threads
from tests.helpers.programs import failure_of, single


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("beginning", ["launchpad-log", "worker-0-1"])
def test_one_of_a_worker_fails_it(beginning: str) -> None:
    program = single(lp.CourierNode(dying_threads.Served, beginning))

    failure = failure_of(program, "local_mp")

    assert re.search(f"launchpad's own thread '{beginning}.*' has died of Killed", str(failure))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_of_the_launcher_ends_the_program() -> None:
    running = lp.launch(single(lp.PyNode(lp.wait_for_stop)), "local_mp")
    dying_threads.kill("launchpad-output")

    with pytest.raises(lp.LaunchError, match="own thread 'launchpad-output' has died of Killed"):
        running.wait()

    assert running.is_done


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_only_those_who_watch_at_the_time_are_told() -> None:
    texts: list[str] = []
    later: list[str] = []

    def fail() -> None:
        raise ValueError("broken")

    with own_threads.watched(texts.append):
        thread = OwnThread(fail, name="own")
        thread.start()
        thread.join()
    with own_threads.watched(later.append):
        pass

    assert texts == ["launchpad's own thread 'own' has died of ValueError: broken"]
    assert later == []


@pytest.mark.parametrize(
    ("module", "question"),
    [("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")],
)
def test_a_process_whose_threads_a_library_has_replaced_launches_nothing(
    module: str, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched = SimpleNamespace(**{question: lambda name: name in ("thread", "threading")})
    monkeypatch.setitem(sys.modules, module, patched)

    with pytest.raises(lp.LaunchError, match=f"^{module.partition('.')[0]} has replaced"):
        lp.launch(single(lp.PyNode(lp.wait_for_stop)), "local_mt")
