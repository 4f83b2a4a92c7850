from __future__ import annotations

import pytest

from examples.consumer_producers.program import Producer, check, count_by_sieve


def test_producer_counts_the_primes_in_its_range() -> None:
    assert Producer().work(range(10, 20)) == 4


@pytest.mark.parametrize(
    ("limit", "count"), [(1, 0), (2, 0), (3, 1), (4, 2), (10, 4), (1_000, 168), (100_000, 9_592)]
)
def test_sieve_counts_the_primes_below_its_limit(limit: int, count: int) -> None:
    assert count_by_sieve(limit) == count


def test_check_refuses_a_wrong_count() -> None:
    with pytest.raises(ArithmeticError, match="4 primes are below 10, not 5"):
        check([2, 3], 10)


def test_consumer_producers_add_up_to_the_right_sum(run_example, launch_type) -> None:
    done = run_example("consumer_producers", launch_type, "--producers=3", "--limit=10000")

    assert done.returncode == 0, done.stderr
    assert "= 1229 primes below 10000" in done.stdout
    assert "the sum is right" in done.stdout


def test_consumer_producers_report_a_consumer_that_raises(
    assert_failure_is_reported, launch_type
) -> None:
    assert_failure_is_reported(
        "consumer_producers", launch_type, broken="Producer.work", worker="consumer"
    )
