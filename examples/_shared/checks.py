"""Checks of a paper's claims on what a program has computed. Each check prints a line: `ok …`."""

import difflib
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from absl import flags

from examples._shared import pictures
from examples._shared.data import Array

JSON = flags.DEFINE_string("json", "", "File for what was checked, for the page of all examples.")
QUICK = flags.DEFINE_bool("quick", False, "Do a little of everything, in 15 seconds at most.")

_passed: list[dict[str, str]] = []


def phase(title: str) -> None:
    """Print a heading for what the example does next: `phase("4 ranks; then rank 1 is killed")`."""
    print(f"\n== {title}", flush=True)


def check(ok: bool, claim: str, measured: str) -> None:
    """Print the claim and what was measured. Raise ArithmeticError if the claim does not hold."""
    print(f"{'ok   ' if ok else 'WRONG'} {claim}: {measured}", flush=True)
    if not ok:
        raise ArithmeticError(f"it should hold that {claim}; {measured}")
    _passed.append({"claim": claim, "measured": measured})


def check_same_bits(claim: str, arrays: Iterable[Array]) -> None:
    """Check that arrays are equal bit for bit. Print the digest of each that differs."""
    digests = {hashlib.sha256(array.tobytes()).hexdigest()[:12] for array in arrays}
    check(len(digests) == 1, claim, f"sha256 {', '.join(sorted(digests))}")


def check_few_lines_differ(
    claim: str, at_most: int, before: Callable[..., object], after: Callable[..., object]
) -> None:
    """Check that few lines turn one function into the other, and print those lines."""
    old = inspect.getsource(before).splitlines()
    new = inspect.getsource(after).splitlines()
    lines = [line for line in difflib.ndiff(old, new) if line[0] in "-+"]
    print("\n".join(lines))
    changed = max(sum(line[0] == sign for line in lines) for sign in "-+")
    check(changed <= at_most, f"{claim} with at most {at_most} new or changed lines", f"{changed}")


def done() -> None:
    """Print that all claims held. Write the files that `--json` and `--picture` name."""
    if JSON.value:
        Path(JSON.value).write_text(json.dumps(_passed, indent=1))
    pictures.write()
    print("the answer is right")
