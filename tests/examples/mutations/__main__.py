"""Run it: python -m tests.examples.mutations [EXAMPLE[/TEXT OF RULE]] …"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from examples._shared.places import EXAMPLES, folder_of, module_of
from tests.examples.mutations import Mutation

_TIMEOUT_S = 240.0


def all_names() -> list[str]:
    """Return the names of the examples that have mutations."""
    return sorted(file.stem for file in Path(__file__).parent.glob("[!_]*.py"))


def selected(texts: Sequence[str]) -> Iterator[tuple[str, Mutation]]:
    """Yield the mutations that the command line names, each with the name of its example."""
    for text in texts or all_names():
        name, _, of_rule = text.partition("/")
        for mutation in importlib.import_module(f"tests.examples.mutations.{name}").MUTATIONS:
            if of_rule in mutation.rule:
                yield name, mutation


def file_of(name: str, mutation: Mutation) -> Path:
    """Return the file that the mutation changes, as a path inside the examples."""
    folder = folder_of(name).relative_to(EXAMPLES)
    is_shared = mutation.file.startswith("_shared/")
    return Path(mutation.file) if is_shared else folder / mutation.file


def verdict(name: str, mutation: Mutation) -> tuple[bool, str]:
    """Run the example with a rule broken. Return whether its checks refuse it, and what they say."""
    path = file_of(name, mutation)
    text = (EXAMPLES / path).read_text()
    count = text.count(mutation.old)
    if count != 1:
        return False, f"UNKNOWN: {path} contains {mutation.old!r} {count} times, not once"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "examples")
        shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__", "*.svg"))
        (copy / path).write_text(text.replace(mutation.old, mutation.new))
        status, output = run(folder, module_of(name), mutation.flags)
    wrong = [line for line in output.splitlines() if line.startswith("WRONG")]
    if wrong:
        return True, f"refused: {wrong[0]}"
    last = output.strip().rpartition("\n")[2]
    return False, f"NOT REFUSED: {status}, {last}"


def run(folder: str, module: str, flags: Sequence[str]) -> tuple[str, str]:
    """Run an example that is in this folder as processes. Return how it ended, and its output."""
    command = [sys.executable, "-m", module, "--quick", "--lp_launch_type=local_mp", *flags]
    path = os.pathsep.join([folder, str(EXAMPLES.parent)])
    environment = {**os.environ, "PYTHONPATH": path}
    # A file and not a pipe, since a process that is left behind would keep a pipe open.
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        # A session of its own, so that all processes of a program that hangs can be killed.
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            ended = f"exit status {process.wait(_TIMEOUT_S)}"
        except subprocess.TimeoutExpired:
            ended = f"it hangs for {_TIMEOUT_S:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        file.seek(0)
        return ended, file.read()


def main(texts: Sequence[str]) -> int:
    """Break the rules that these texts select. Return the exit status."""
    mutations = list(selected(texts))
    n_refused = 0
    for name, mutation in mutations:
        print(f"{file_of(name, mutation)}: {mutation.rule}", flush=True)
        started = time.monotonic()
        is_refused, how = verdict(name, mutation)
        n_refused += is_refused
        print(f"    {how} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{n_refused} of {len(mutations)} wrong programs were refused")
    return int(n_refused < len(mutations))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
