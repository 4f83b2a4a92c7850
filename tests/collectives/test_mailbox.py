"""Messages of other ranks, and those that wait for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from launchpad.collectives.mailbox import Mailbox


def refuse(parts: list[Any]) -> Any:
    raise ValueError(f"cannot reduce {parts}")


def test_all_that_have_come_raise_what_the_answer_to_them_raises() -> None:
    mailbox = Mailbox()
    mailbox.begin("", 1, "reduce")

    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(mailbox.meet, ("", 1, 0, rank), "reduce", rank, 60, (0, 1), refuse)
            for rank in range(2)
        ]

    for future in both:
        with pytest.raises(ValueError, match=r"cannot reduce \[0, 1\]"):
            future.result()
