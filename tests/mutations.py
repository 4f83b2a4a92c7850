"""Rules broken on purpose, one at a time: `python -m tests.mutations` shows that tests notice each of them.

It changes a line of this checkout, runs the tests that guard the rule as `make test` does, and puts the line
back. Exits with 1 if a broken rule went unnoticed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutation:
    """A rule, the line that keeps it, what breaks it, and the tests that should fail then."""

    rule: str
    file: str
    old: str
    new: str
    tests: str

    def path(self) -> Path:
        return ROOT / "launchpad" / self.file


MUTATIONS = (
    Mutation(
        "a client without the token is refused",
        "courier/server/handshake.py",
        "hmac.compare_digest(hello.token, core.token)",
        "hmac.compare_digest(hello.token, hello.token)",
        "tests/courier/test_handshake.py tests/courier/test_hostile_peers.py",
    ),
    Mutation(
        "a call that may have run is not made again, unless it is idempotent",
        "courier/client/channel.py",
        "if not self.peer.may_repeat(method, self.options):",
        "if False:",
        "tests/courier/test_death.py",
    ),
    Mutation(
        "a call made for another has at most its deadline",
        "courier/call_stack.py",
        "return min(self.deadline, deadline)",
        "return deadline",
        "tests/courier/test_deadlines.py",
    ),
    Mutation(
        "a result larger than the caller takes is not sent",
        "courier/server/dispatcher.py",
        "if size <= max_bytes:",
        "if size <= 1 << 60:",
        "tests/courier/test_pipeline.py tests/courier/test_inprocess.py",
    ),
    Mutation(
        "a frame that was written in part is written anew, on the next connection",
        "courier/transport/write_queue.py",
        "if end > self._n_written]",
        "if end > self._n_written and not self._n_written]",
        "tests/courier/test_write_queue.py tests/courier/test_pipeline.py",
    ),
    Mutation(
        "memory that its sender could shrink is not mapped",
        "courier/shm/segments.py",
        "if not seals & fcntl.F_SEAL_SHRINK:",
        "if not seals:",
        "tests/courier/test_segments.py",
    ),
    Mutation(
        "a worker whose work is done is not restarted while the program stops",
        "launch/supervision/restart.py",
        "(policy.mode != ALWAYS or is_stopping)",
        "policy.mode != ALWAYS",
        "tests/launch/test_restart_policy.py",
    ),
    Mutation(
        "groups are asked to stop in reverse order of start",
        "launch/supervision/shutdown.py",
        "for g in groups if",
        "for g in reversed(groups) if",
        "tests/launch/test_supervisor.py",
    ),
    Mutation(
        "a worker that was killed after its work was done has failed",
        "launch/backends/processes/exit_status.py",
        "(reported.is_failure or not name)",
        "True",
        "tests/launch/test_processes.py tests/faults",
    ),
    Mutation(
        "another version of launchpad, Python or cloudpickle is refused",
        "launch/backends/launch_origin.py",
        'if ours != (theirs := launcher.get(name, "an unknown version"))',
        'if name == "Python" and ours != (theirs := launcher.get(name, ""))',
        "tests/kubernetes tests/launch",
    ),
    Mutation(
        "a log is turned over when it is full",
        "launch/logs/log_writer.py",
        "if 0 < self._rotation.max_bytes < os.fstat(self.fd).st_size:",
        "if self._rotation.max_bytes < 0:",
        "tests/launch/test_logs.py",
    ),
    Mutation(
        "courier does not know of launches",
        "courier/errors.py",
        "class CourierError(",
        "def _launch():\n    from launchpad.launch import launch\n\n\nclass CourierError(",
        "tests/test_layers.py",
    ),
    Mutation(
        "names are the field's own",
        "courier/promise.py",
        "def result(",
        "def farewell(self):\n        pass\n\n    def result(",
        "tests/test_words.py",
    ),
)


def failures(tests: str) -> list[str]:
    """The tests among these that fail, as `make test` runs them; it ends at the first."""
    command = ["make", "test", f"PYTEST_ARGS=-q -x --no-header {tests}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    return [line.partition(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]


def is_noticed(mutation: Mutation) -> bool:
    """Whether a test fails while the rule is broken, and none before."""
    text = mutation.path().read_text()
    assert text.count(mutation.old) == 1, f"{mutation.file} has not once {mutation.old!r}"
    assert not (before := failures(mutation.tests)), f"fails with the rule unbroken: {before}"
    mutation.path().write_text(text.replace(mutation.old, mutation.new))
    try:
        failed = failures(mutation.tests)
    finally:
        mutation.path().write_text(text)
    print("   ", failed[0] if failed else "no test fails")
    return bool(failed)


def main() -> int:
    """Breaks each rule; the exit status."""
    unnoticed = []
    for mutation in MUTATIONS:
        print(mutation.rule, flush=True)
        started = time.monotonic()
        if not is_noticed(mutation):
            unnoticed.append(mutation.rule)
        print(f"    {time.monotonic() - started:.0f} s", flush=True)
    print(
        f"{len(MUTATIONS) - len(unnoticed)} of {len(MUTATIONS)} broken rules were noticed",
        unnoticed,
    )
    return len(unnoticed) > 0


if __name__ == "__main__":
    sys.exit(main())
