"""What has left in full is known to the record."""

from __future__ import annotations

import pytest

from launchpad.courier.carriers.sealed import FRILLS, RECORD, Sealed

WHOLE = RECORD + FRILLS


@pytest.mark.parametrize("n_before", [0, 27])
def test_only_whole_records_count_as_gone(n_before: int) -> None:
    sealed = Sealed(bytes(n_before + 2 * WHOLE + 100 + FRILLS), 2 * RECORD + 100)

    told = []
    for n in (n_before + WHOLE - 1, 1, WHOLE - 1, 1, 100 + FRILLS - 1, 1):
        sealed.advance(n)
        told.append(sealed.tell())

    assert told == [0, RECORD, 0, RECORD, 0, 100]


def test_what_was_told_once_is_not_told_again() -> None:
    sealed = Sealed(bytes(WHOLE), RECORD)

    before = sealed.n_untold
    sealed.advance(WHOLE)

    assert (before, sealed.tell(), sealed.tell(), sealed.n_untold) == (RECORD, RECORD, 0, 0)


def test_what_tls_says_for_itself_is_none_of_the_callers_data() -> None:
    sealed = Sealed(bytes(30))

    sealed.advance(10)

    assert (sealed.tell(), sealed.n_untold, len(sealed.rest)) == (0, 0, 20)
