"""What has left in full is known to the record."""

from __future__ import annotations

import pytest

from launchpad.courier.transport.tls import RECORD, RECORD_OVERHEAD, PendingCiphertext

WHOLE = RECORD + RECORD_OVERHEAD


@pytest.mark.parametrize("n_before", [0, 27])
def test_only_whole_records_count_as_gone_and_each_once(n_before: int) -> None:
    sealed = PendingCiphertext(
        bytes(n_before + 2 * WHOLE + 100 + RECORD_OVERHEAD), 2 * RECORD + 100
    )
    before = sealed.n_unreported

    told = []
    for n in (n_before + WHOLE - 1, 1, WHOLE - 1, 1, 100 + RECORD_OVERHEAD - 1, 1):
        sealed.advance(n)
        told.append(sealed.report_sent())

    assert told == [0, RECORD, 0, RECORD, 0, 100]
    assert before == 2 * RECORD + 100
    assert (sealed.report_sent(), sealed.n_unreported) == (0, 0)


def test_what_tls_says_for_itself_is_none_of_the_callers_data() -> None:
    sealed = PendingCiphertext(bytes(30))

    sealed.advance(10)

    assert (sealed.report_sent(), sealed.n_unreported, len(sealed.rest)) == (0, 0, 20)
