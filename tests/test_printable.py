"""Text of users' programs on a terminal, in tables and in reports."""

from __future__ import annotations

import launchpad as lp
from launchpad import printable
from launchpad.outcome import Outcome, report
from tests.faults.backends import both
from tests.helpers.programs import failure_of, single

NASTY = "\x1b[2J\x1b]0;title\x07\x08[red]gone[/]"
SPELLED = r"\x1b[2J\x1b]0;title\x07\x08[red]gone[/]"


def test_control_characters_are_spelled_out_and_colours_end_with_their_line() -> None:
    assert printable.plain(f"a\n{NASTY}") == rf"a\n{SPELLED}"
    assert printable.coloured(NASTY) == f"{SPELLED}"
    assert printable.coloured("\x1b[31mred") == "\x1b[31mred\x1b[0m"


def test_of_a_long_text_the_beginning_and_the_end_are_left() -> None:
    assert printable.shortened("abc", 3) == "abc"
    assert printable.shortened("begin" + "x" * 5000 + "end..", 10) == (
        "begin … 5,000 characters left out … end.."
    )


def test_a_report_has_no_control_characters_of_names_causes_and_tracebacks() -> None:
    first = Outcome("a-0", "failed", cause=NASTY, traceback=f"Traceback\n{NASTY}", hint=NASTY)

    text = report(NASTY, first, (Outcome("b-0", "failed", cause=NASTY),))

    assert printable.plain(text.replace("\n", "")) == text.replace("\n", "")
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
