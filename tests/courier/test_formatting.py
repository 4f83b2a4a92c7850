"""Text of users' programs on a terminal, in tables and in reports."""

from __future__ import annotations

import pytest

import launchpad as lp
from launchpad.courier import formatting
from launchpad.outcome import Outcome, report
from tests.faults.backends import both
from tests.helpers.programs import failure_of, single

NASTY = "\x1b[2J\x1b]0;title\x07\x08[red]gone[/]"
SPELLED = r"\x1b[2J\x1b]0;title\x07\x08[red]gone[/]"


def test_control_characters_are_spelled_out_and_colours_end_with_their_line() -> None:
    assert formatting.plain(f"a\n{NASTY}") == rf"a\n{SPELLED}"
    assert formatting.coloured(NASTY) == f"{SPELLED}"
    assert formatting.coloured("\x1b[31mred") == "\x1b[31mred\x1b[0m"


def test_of_a_long_text_the_beginning_and_the_end_are_left() -> None:
    assert formatting.shortened("abc", 3) == "abc"
    assert formatting.shortened("begin" + "x" * 5000 + "end..", 10) == (
        "begin … 5,000 characters left out … end.."
    )


def test_a_report_has_no_control_characters_of_names_causes_and_tracebacks() -> None:
    first = Outcome("a-0", "failed", cause=NASTY, traceback=f"Traceback\n{NASTY}", hint=NASTY)

    text = report(NASTY, first, (Outcome("b-0", "failed", cause=NASTY),))

    assert formatting.plain(text.replace("\n", "")) == text.replace("\n", "")
    assert text.count(SPELLED) == 5


def fail_at_length() -> None:
    raise ValueError("first" + "x" * (50 << 20) + "last")


@both
def test_an_exception_with_a_text_of_50_mb_has_a_short_report(launch_type: str) -> None:
    failed = failure_of(single(lp.PyNode(fail_at_length)), launch_type)

    assert failed.outcome.cause.startswith("ValueError: first")
    assert len(str(failed)) < 500_000
    assert "in fail_at_length" in str(failed)
    assert "52,4" in failed.outcome.cause
    assert failed.outcome.traceback.endswith("last")


@pytest.mark.parametrize(
    ("n_bytes", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (31_700, "31 KiB"),
        (1_234_567, "1.18 MiB"),
        (4 << 30, "4 GiB"),
        (5 << 60, "5120 PiB"),
    ],
)
def test_a_size_has_three_digits_and_a_binary_unit(n_bytes: int, shown: str) -> None:
    assert formatting.size(n_bytes) == shown
