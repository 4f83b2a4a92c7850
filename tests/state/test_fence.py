"""On threads, an attempt that was killed may go on beside its next one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from tests.helpers.programs import single
from tests.waiting import until

DEADLINE_S = 60

is_pickling, may_go_on = threading.Event(), threading.Event()
ends: list[BaseException] = []


class Slow:
    def __reduce__(self) -> Any:
        is_pickling.set()
        assert may_go_on.wait(DEADLINE_S)
        return str, ("of the first attempt",)


class Keeper:
    """A server whose first attempt is killed while one of its methods saves."""

    def save_slowly(self) -> None:
        try:
            lp.current().save(Slow())
        except BaseException as error:
            ends.append(error)
            raise

    def save_at_once(self) -> None:
        lp.current().save("of the second attempt")

    def saved(self) -> list[Any]:
        me = lp.current()
        return [me.load(version=version) for version in me.saved_versions()]


def test_what_a_killed_attempt_saves_late_does_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = single(lp.CourierNode(Keeper), "keeper", restart=lp.RestartPolicy(backoff=0))

    with lp.launch(program, "test_mt", state=tmp_path) as running:
        keeper: Any = running.client("keeper")
        first = keeper.futures.save_slowly()
        assert is_pickling.wait(DEADLINE_S)
        running.crash("keeper-0", "told to die")
        until(lambda: [(row.state, row.attempt) for row in running.status()] == [("running", 2)])
        keeper.save_at_once()
        may_go_on.set()
        until(lambda: ends)

        assert keeper.saved() == ["of the second attempt"]
        with pytest.raises(lp.courier.CourierError):
            first.result(DEADLINE_S)

    assert [type(end) for end in ends] == [lp.Stopped]
    assert not caplog.messages
