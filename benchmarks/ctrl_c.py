"""A test of Ctrl-C: press it in a terminal at random moments of a script, and look at the screen.

    python benchmarks/ctrl_c.py --trials 200              once
    python benchmarks/ctrl_c.py --trials 200 --presses 2  and once more soon after it

Each trial runs a script in a pseudo-terminal of its own, as a shell would: in the foreground, on its
controlling terminal. The script launches four workers as processes. The key comes at a random moment
between the script's first line and the moment when all workers run. So it interrupts imports, launch(),
or the start of the workers. Launchpad cannot change what Python prints when it is interrupted before it has
imported launchpad. So the first line of the script prints that the script has begun, the second one is
`import launchpad`, and the key comes at least 5 ms after the first. The benchmark repeats a trial in which
Python had not reached `import launchpad` by then.

After each trial there must be no traceback on the screen, the exit code must be 130, and the prompt must be
back within 1 s of the key, or within 300 ms of the second one. No process may be left, and no file except
logs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import random
import re
import select
import signal
import termios
import time
from dataclasses import dataclass, field
from typing import Self

from benchmarks.harness import holdings
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import percentiles
from benchmarks.harness.processes import wait_until

LIMITS_S = {1: 1.0, 2: 0.3}
CHECK_EVERY_S = 15.0
FOUND_AFTER_S = 0.005
CTRL_C = b"\x03"

SCRIPT = """print("@begun", flush=True)
import launchpad as lp
import json, logging, sqlite3, urllib.request, xml.dom.minidom  # what scripts import

class Server:
    def ping(self):
        return "pong"

class Caller:
    def __init__(self, server):
        self.server = server

    def run(self):
        while not lp.stop_event().wait(0.05):
            self.server.ping()

program = lp.Program("pressed")
server = program.add_node(lp.CourierNode(Server), label="server")
with program.group("caller"):
    for _ in range(3):
        program.add_node(lp.PyClassNode(Caller, server))
running = lp.launch(program, "local_mp")
running.client("server").ping()
print("@runs", flush=True)
"""


@dataclass
class Trial:
    """The result of interrupting one script."""

    after_s: float
    seconds: float = 0.0
    exit_code: int | None = None
    screen: str = ""
    left: list[str] = field(default_factory=list)

    @property
    def came_too_early(self) -> bool:
        """True if the key came before Python had imported launchpad."""
        return re.search(r'script.py", line [12]\b', self.screen) is not None

    def faults(self, limit_s: float) -> list[str]:
        """Return a description of each thing that is wrong."""
        faults = list(self.left)
        if re.search(r"Traceback|KeyboardInterrupt|Exception ignored|Error", self.screen):
            faults.append("a traceback on the screen")
        if self.exit_code != 130:
            faults.append(f"exit code {self.exit_code}")
        if self.seconds > limit_s:
            faults.append(f"{self.seconds * 1000:.0f} ms")
        return faults


class Terminal:
    """A script in the foreground of a terminal of its own; it is killed at the end of the block."""

    def __init__(self) -> None:
        self.screen = b""
        self._keys, theirs = pty.openpty()

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            # The benchmark itself may have been started with SIGINT ignored, and a child inherits that.
            signal.signal(signal.SIGINT, signal.default_int_handler)

        self.script = holdings.MarkedScript(
            SCRIPT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.script.__exit__(*exception)
        os.close(self._keys)

    def press(self) -> None:
        os.write(self._keys, CTRL_C)

    def read_until(self, text: bytes, within_s: float) -> bool:
        """Read until the text is on the screen; return False if that takes too long."""
        deadline = time.monotonic() + within_s
        while text not in self.screen:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._read(left_s):
                break
        return text in self.screen

    def wait(self, within_s: float) -> int | None:
        """Return the exit code, in a shell's form; None if the script has not ended in time."""
        deadline = time.monotonic() + within_s
        while True:
            code = self.script.process.poll()
            if code is not None or time.monotonic() >= deadline:
                break
            self._read(0.002)
        # The script may have ended with output that nobody has read yet.
        while self._read(0.0):
            pass
        return 128 - code if code is not None and code < 0 else code

    def _read(self, within_s: float) -> bool:
        if not select.select([self._keys], [], [], within_s)[0]:
            return False
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            data = os.read(self._keys, 65536)
            self.screen += data
            return bool(data)
        return False


def time_to_run() -> float:
    """Return the seconds from the script's first line until all workers run."""
    with Terminal() as screen:
        assert screen.read_until(b"@begun", CHECK_EVERY_S)
        began = time.monotonic()
        assert screen.read_until(b"@runs", CHECK_EVERY_S), screen.screen.decode()
        return time.monotonic() - began


def trial(after_s: float, again_after_s: float | None) -> Trial:
    """Interrupt one script once or twice."""
    result = Trial(after_s)
    with Terminal() as screen:
        assert screen.read_until(b"@begun", CHECK_EVERY_S)
        time.sleep(after_s)
        screen.press()
        pressed = time.monotonic()
        if again_after_s is not None and screen.wait(again_after_s) is None:
            screen.press()
            pressed = time.monotonic()
        result.exit_code = screen.wait(CHECK_EVERY_S)
        result.seconds = time.monotonic() - pressed
        # Processes may still exist for a moment after the prompt is back.
        wait_until(lambda: not screen.script.processes(), 0.25)
        result.left = screen.script.left_over()
        result.screen = screen.screen.decode(errors="replace")
    return result


def show(trials: list[Trial], limit_s: float) -> list[str]:
    """Print the figures; return the faults of each trial that has any."""
    ms = [t.seconds * 1000 for t in trials]
    times = ", ".join(f"{value:.0f} ms ({name})" for name, value in percentiles(ms).items())
    print(f"{len(trials)} trials: prompt back after {times}")
    counts = {
        "traceback on the screen": sum("a traceback on the screen" in t.faults(9) for t in trials),
        "exit code not 130": sum(t.exit_code != 130 for t in trials),
        f"later than {limit_s * 1000:.0f} ms": sum(t.seconds > limit_s for t in trials),
        "something left": sum(bool(t.left) for t in trials),
    }
    print("; ".join(f"{name}: {count}" for name, count in counts.items()))
    return [
        f"pressed after {t.after_s:.3f} s: {', '.join(t.faults(limit_s))}\n{t.screen[:3000]}"
        for t in trials
        if t.faults(limit_s)
    ]


def main() -> None:
    """Print the figures; exit with 1 if any trial has a fault."""
    parser = Parser(__doc__, {"trials": 3}, trials=200, seed=0)
    parser.add_argument("--presses", type=int, choices=(1, 2), default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    until_it_runs_s = max(time_to_run() for _ in range(2))
    print(f"the script runs after {until_it_runs_s:.2f} s")
    trials: list[Trial] = []
    while len(trials) < options.trials:
        again = chance.uniform(0.0, 0.3) if options.presses == 2 else None
        after_s = chance.uniform(FOUND_AFTER_S, until_it_runs_s * 1.1)
        result = trial(after_s, again)
        while result.came_too_early:
            result = trial(after_s, again)
        trials.append(result)
    faults = show(trials, LIMITS_S[options.presses])
    rows = [vars(t) for t in trials]
    finish(options, {"ctrl_c": {"trials": rows, "faulty": len(faults)}}, faults)


if __name__ == "__main__":
    main()
