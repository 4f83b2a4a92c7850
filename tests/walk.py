"""Which files of launchpad a reader walks through: `python -m tests.walk` prints them in order.

Two walks: one call of a client that has called before, over a Unix socket; and a node from `add_node` to its
`run()` in a process. Each function that is called is noted, in all threads and processes, with its file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

LOG = "LAUNCHPAD_TESTS_WALK"
START, END = "start of the walk", "end of the walk"
WARM_UP_CALLS = 300
_IS_FUNCTION = 1  # CO_OPTIMIZED: not the body of a module or class

_seen: set[str] = set()


def note(text: str) -> None:
    with open(os.environ[LOG], "a") as log:  # a forkserver closes what it inherits
        log.write(f"{text}\n")


def note_function(frame: FrameType, event: str, arg: object) -> None:
    code = frame.f_code
    _, package, file = code.co_filename.rpartition("/launchpad/")
    if event != "call" or not package or not code.co_flags & _IS_FUNCTION or "<" in code.co_name:
        return
    function = f"{os.getpid()} {file} {code.co_name}"
    if function not in _seen:
        _seen.add(function)
        note(function)


def profile() -> None:
    threading.setprofile(note_function)
    sys.setprofile(note_function)


class _Node:
    def run(self) -> None:
        note(END)

    def method(self, number: int) -> int:
        return number + 1


def call() -> None:
    import launchpad as lp

    server = lp.courier.Server("walk")
    server.bind_object(_Node())
    server.start()
    with lp.courier.Client(server.address) as client:
        for number in range(WARM_UP_CALLS):
            client.method(number)
        _seen.clear()
        note(START)
        client.method(1)
        note(END)
    server.stop()


def launch() -> None:
    import launchpad as lp

    note(START)
    program = lp.Program("walk")
    program.add_node(lp.PyClassNode(_Node), label="node")
    lp.launch(program, "local_mp").wait()


def walk(name: str) -> list[tuple[str, str]]:
    """File and function, in the order in which they were called first."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        Path(folder, "sitecustomize.py").write_text("import tests.walk\ntests.walk.profile()\n")
        root = str(Path(__file__).parents[1])
        environment = {**os.environ, LOG: str(log), "PYTHONPATH": f"{folder}{os.pathsep}{root}"}
        command = [sys.executable, "-c", f"import tests.walk; tests.walk.{name}()"]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        lines = log.read_text().splitlines()
    walked = lines[lines.index(START) + 1 : lines.index(END)]
    return [(file, function) for _, file, function in map(str.split, walked)]


def main() -> None:
    for name in ("call", "launch"):
        functions = walk(name)
        files = list(dict.fromkeys(file for file, _ in functions))
        starts = [f"{file}:{name}" for file, name in functions if name in ("start", "begin")]
        print(f"{name}: {len(files)} files, called start or begin: {starts}")
        for file in files:
            print(f"  {file:45} {' '.join(f for other, f in functions if other == file)}")


if __name__ == "__main__":
    main()
