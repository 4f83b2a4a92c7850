from __future__ import annotations

import pytest

from examples.consumer_producers.program import check, count_by_sieve


@pytest.mark.parametrize(("limit", "count"), [(1, 0), (2, 0), (3, 1), (4, 2), (1_000, 168)])
def test_sieve_counts_the_primes_below_its_limit(limit: int, count: int) -> None:
    assert count_by_sieve(limit) == count


def test_check_refuses_a_wrong_count() -> None:
    with pytest.raises(ArithmeticError, match="4 primes are below 10, not 5"):
        check([2, 3], 10)
