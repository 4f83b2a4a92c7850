"""Wrong programs, which the examples' own checks must refuse.

    python -m tests.examples.mutations                  all examples
    python -m tests.examples.mutations horovod ps       those of these examples
    python -m tests.examples.mutations horovod/overlap  those whose rule contains the text

Each module here has the MUTATIONS of the example with its name. For each of them the script copies the
examples to a temporary folder, changes one line there, and runs the example as processes. A mutation is
refused if the example prints a claim that is WRONG. The script exits with 1 if an example accepts a wrong
program.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """A rule of an example's algorithm, the line that keeps it, and what breaks it.

    Attributes:
        file: A file of the example's folder, or of `_shared/`. It contains `old` exactly once.
        flags: Flags of the run besides `--quick`.
    """

    rule: str
    file: str
    old: str
    new: str
    flags: tuple[str, ...] = ()
