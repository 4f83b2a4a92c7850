"""The wall clock jumps by an hour: nothing happens, because nothing looks at it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from tests import nodes
from tests.faults.backends import both

PACKAGE = Path(lp.__file__).parent
MAY_LOOK = {
    "courier/security/certificates.py": "a certificate has dates, which allow for a day either way",
    "courier/security/published_token.py": "what is a minute old is not swept yet",
    "courier/transport/unix.py": "the same, of directories without a socket",
    "launch/rundir/record.py": "when a run began, for people",
    "cli/watching.py": "how long ago that was",
    "launch/supervision/runner.py": "when attempts were, for those who read it later",
    "view/watched_run.py": "the time below a chart",
    "view/time_line.py": "the time above a line",
    "view/pages/time_lines.py": "where a line that goes on has its end",
    "view/pages/runs.py": "when a run began",
    "view/pages/worker.py": "how long an attempt has taken",
    "cli/records.py": "what a user means by ten minutes ago, and when a log was written",
    "launch/backends/slurm/job.py": "a folder that was not touched for a week is not used any more",
    "launch/backends/spark/session.py": "how long an executor is there: Spark says since when",
}
CLOCK = re.compile(r"\b(date)?time\.(time|now|utcnow|today|localtime|gmtime|ctime)\b")


def test_f43_nothing_but_names_and_certificates_reads_the_wall_clock() -> None:
    texts = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}

    assert {name for name, text in texts.items() if CLOCK.search(text)} == set(MAY_LOOK)


@pytest.mark.parametrize("hours", [-1, 1])
@both
def test_f43_calls_deadlines_and_restarts_go_on_when_the_clock_jumps(
    monkeypatch: pytest.MonkeyPatch, launch_type: str, hours: int
) -> None:
    program = lp.Program("clock")
    counter = program.add_node(lp.CourierNode(SlowCounter), label="counter")
    with program.group("caller", restart=lp.RestartPolicy(max_restarts=1, backoff=0)):
        program.add_node(lp.PyNode(call_while_the_clock_jumps, counter, hours))
    monkeypatch.setattr(time, "time", time.time)  # in threads, the workers' change is ours too

    running = lp.testing.run(program, 90, launch_type)

    assert [(s.worker, s.state, s.attempt) for s in running.status()] == [
        ("counter-0", "stopped", 1),
        ("caller-0", "succeeded", 2),
    ]


class SlowCounter(nodes.Counter):
    def doze(self, seconds: float) -> None:
        time.sleep(seconds)


def call_while_the_clock_jumps(counter: Any, hours: int) -> None:
    patient = lp.with_options(counter, timeout_s=20)
    before = patient.add(1)
    now = time.time
    time.time = lambda: now() + hours * 3600
    assert patient.add(1) == before + 1
    with pytest.raises(lp.courier.DeadlineExceeded):
        lp.with_options(counter, timeout_s=0.05).doze(0.5)
    if lp.current().attempt == 1:
        raise ValueError("once more")
