"""The keeper as a fork: it begins like a process of its own, and can be waited for and ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, threading, time
from launchpad.launch.backends.processes.clone import Clone

def sleeps():
    print("own session:", os.getsid(0) == os.getpid(), flush=True)
    print("handler:", signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, flush=True)
    print("stdin:", os.read(0, 1), "open:", sorted(int(fd) for fd in os.listdir("/dev/fd"))[:4], flush=True)
    os.write(kept, b"ready")
    time.sleep(100)

def raises():
    raise ValueError("as it began")

signal.signal(signal.SIGTERM, lambda *_: None)
ours, kept = os.pipe()
log = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for name in ("terminate", "kill"):
    clone = Clone(sleeps, log=log, keep=[kept])
    assert os.read(ours, 5) == b"ready"
    getattr(clone, name)()
    print(name, clone.wait(), clone.wait())
    getattr(clone, name)()  # it is nobody's number any more
print("raises", Clone(raises, log=log, keep=[]).wait())
threading.Thread(target=time.sleep, args=(0.5,)).start()
try:
    Clone(raises, log=log, keep=[])
except AssertionError as error:
    print(error)
"""


@pytest.fixture
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What the script has printed, and what its clones have."""
    log = tmp_path_factory.mktemp("clone") / "log"
    command = [sys.executable, "-c", SCRIPT, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, log.read_text()


def test_it_begins_like_a_process_of_its_own_and_is_ended_and_waited_for(
    printed: tuple[str, str],
) -> None:
    ours, theirs = printed

    assert ours.splitlines() == [
        "terminate -15 -15",
        "kill -9 -9",
        "raises 1",
        "another thread may hold a lock for ever in the copy",
    ]
    assert theirs.count("own session: True\nhandler: True\nstdin: b'' open: [0, 1, 2") == 2
    assert "ValueError: as it began" in theirs
