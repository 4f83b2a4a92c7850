"""Which job is whose: pure data."""

from __future__ import annotations

from launchpad.runtime.callers import Caller
from launchpad.work_queues.job_table import FinishedJob, JobCounts, JobTable

ADA, BOB = Caller("worker-0", 1, "a"), Caller("worker-1", 1, "b")


def table_of(*keys: str, max_attempts: int = 3, lease_s: float | None = None) -> JobTable:
    table = JobTable(max_attempts, lease_s)
    for key in keys:
        table.add(key, key.upper())
    return table


def taken(table: JobTable, holder: Caller, lease: str, now: float = 0.0) -> str | None:
    job = table.take(holder, f"request {lease}", lease, now)
    return None if job is None else str(job.key)


def test_each_job_is_given_to_one_worker_and_done_once() -> None:
    table = table_of("a", "b")

    jobs = [taken(table, holder, lease) for holder, lease in ((ADA, "1"), (BOB, "2"), (BOB, "3"))]

    assert jobs == ["a", "b", None]
    assert table.done("a", "1", "A!")
    assert table.done("a", "1", "A!"), "the call was repeated"
    assert not table.add("a", "again")


def test_a_request_that_is_repeated_gets_the_same_job() -> None:
    table = table_of("a", "b")

    first = table.take(ADA, "request", "1", 0.0)
    again = table.take(ADA, "request", "2", 0.0)

    assert first is again
    assert table.counts().leased == 1


def test_the_job_of_a_worker_that_has_ended_is_another_s_and_what_it_says_late_is_refused() -> None:
    table = table_of("a")
    taken(table, ADA, "1")

    table.end_leases(lambda holder: holder == ADA, 0.0)

    assert not table.give_back("a", "1", "worker-0 (attempt 1) has ended, and had not done it")
    assert not table.give_back("a", "1")
    assert taken(table, BOB, "2") == "a"
    assert not table.done("a", "1", "late")
    assert table.done("a", "2", "right")
    assert table.finished == [FinishedJob("a", "right")]


def test_a_lease_ends_with_its_time_unless_it_is_extended() -> None:
    table = table_of("a", lease_s=10.0)
    taken(table, ADA, "1", now=0.0)

    assert table.extend("a", "1", now=9.0)
    assert not table.end_leases(lambda _: False, now=18.0)
    assert table.end_leases(lambda _: False, now=19.0)

    assert not table.extend("a", "1", now=19.0)
    assert table.jobs["a"].reasons == ["worker-0 (attempt 1) had not done it within 10 s"]


def test_a_job_that_fails_too_often_is_given_up_with_all_reasons() -> None:
    table = table_of("a", max_attempts=2)

    taken(table, ADA, "1")
    table.give_back("a", "1")  # does not count
    taken(table, ADA, "2")
    table.give_back("a", "2", "no memory")
    taken(table, BOB, "3")
    table.end_leases(lambda holder: holder == BOB, 0.0)
    table.is_closed = True

    reasons = ("no memory", "worker-1 (attempt 1) has ended, and had not done it")
    assert table.finished == [FinishedJob("a", None, reasons)]
    assert table.finished[0].is_failed
    assert table.counts() == JobCounts(pending=0, leased=0, done=0, failed=1, is_closed=True)
    assert table.is_over
    assert not table.done("a", "3", "late")


def test_a_job_that_is_given_back_or_fails_once_more_is_answered_alike_and_counts_once() -> None:
    table = table_of("a", max_attempts=2)
    taken(table, ADA, "1")
    assert [table.give_back("a", "1") for _ in range(2)] == [True, True]
    taken(table, ADA, "2")
    assert [table.give_back("a", "2", "no memory") for _ in range(2)] == [True, True]
    taken(table, BOB, "3")

    again = [table.give_back("a", "1"), table.give_back("a", "2", "no memory")]

    assert again == [True, True]
    assert table.counts() == JobCounts(pending=0, leased=1, done=0, failed=0, is_closed=False)
    assert [table.give_back("a", "3", "no disk") for _ in range(2)] == [True, True]
    assert table.finished == [FinishedJob("a", None, ("no memory", "no disk"))]
    assert not table.give_back("a", "3"), "which is something else"


def test_a_job_that_is_given_back_again_and_again_takes_no_more_memory() -> None:
    table = table_of("a")

    for number in range(1000):
        taken(table, ADA, str(number))
        table.give_back("a", str(number))

    assert list(table.jobs["a"].ended_leases) == [str(number) for number in range(900, 1000)]


def test_after_a_restart_the_first_result_counts_whosever_it_is() -> None:
    table = table_of("a", "b")
    taken(table, ADA, "1")
    saved = table.copy()
    table.done("a", "1", "after it was saved")

    saved.restart()

    assert [taken(saved, BOB, "2"), taken(saved, BOB, "3")] == ["b", "a"]
    assert saved.done("a", "1", "A!")
    assert not saved.done("a", "3", "second")
    assert saved.finished == [FinishedJob("a", "A!")]


def test_the_result_of_a_lease_that_was_given_after_the_last_save_is_taken() -> None:
    table = table_of("a")
    saved = table.copy()
    taken(table, ADA, "1")
    saved.restart()

    assert saved.done("a", "1", "A!")
    assert taken(saved, BOB, "2") is None
