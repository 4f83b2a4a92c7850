"""What a queue holds, without a server."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from launchpad.queues.contents import QueueContents, QueueSession
from launchpad.queues.packing import pack


def contents(
    *values: int, maxsize: int = 10, producers: int | None = 1, redeliver: bool = True
) -> QueueContents:
    """A queue in which these wait."""
    made = QueueContents(maxsize, producers, redeliver)
    made.put(session(made, "put", "producer-0"), [pack(value) for value in values])
    return made


def session(queue: QueueContents, key: str, worker: str, attempt: int = 1) -> QueueSession:
    found = queue.session(key, worker, attempt)
    assert found is not None
    return found


def take(queue: QueueContents, worker: str, n: int) -> QueueSession:
    taken = session(queue, worker, worker)
    queue.take(taken, n)
    return taken


def rest(queue: QueueContents) -> list[object]:
    """All that wait, in their order."""
    last = session(queue, "last", "script", attempt=0)
    queue.take(last, 100)
    return [number for number, _ in last.in_hand]


def test_no_more_than_maxsize_items_wait() -> None:
    queue = contents(1, 2, maxsize=3)

    accepted = queue.put(session(queue, "put", "producer-0"), [b"c", b"d"])

    assert accepted == 1
    assert queue.n_waiting == queue.stats().most_waiting == 3
    assert not queue.has_room


def test_what_a_dead_consumer_had_in_hand_goes_back_to_the_front_and_is_reported() -> None:
    queue = contents(1, 2, 3, 4, 5)
    take(queue, "a-0", 2)
    take(queue, "b-0", 2)

    (of_b,) = queue.end("b-0", 1, is_well=False)
    (of_a,) = queue.end("a-0", 1, is_well=False)

    assert (of_b.consumer, of_b.attempt, of_b.numbers, of_b.items) == ("b-0", 1, (3, 4), [3, 4])
    assert "a-0 (attempt 1) ended with 2 items in hand, numbers 1 to 2" in str(of_a)
    assert queue.stats().redelivered == 4
    assert rest(queue) == [1, 2, 3, 4, 5]


def test_without_redelivery_what_may_have_been_handled_is_listed_as_lost() -> None:
    queue = contents(1, redeliver=False)
    waits = session(queue, "b", "b-0")
    take(queue, "a-0", 1)
    queue.close("producer-0", 1)
    assert queue.is_over(waits)  # nothing comes back

    (report,) = queue.end("a-0", 1, is_well=False)

    assert (report.is_lost, queue.stats().lost, rest(queue)) == (True, 1, [])
    assert list(queue.reports) == [report]


def test_what_is_given_back_waits_again_and_the_rest_of_one_that_succeeds_is_handled() -> None:
    queue = contents(1, 2, 3, 4)
    taken = take(queue, "a-0", 3)

    queue.settle(taken, 1, 1)  # 1 is handled, 2 in work, 3 was fetched ahead
    reports = queue.end("a-0", 1, is_well=True)

    counts = queue.stats()
    assert reports == []
    assert (counts.handled, counts.returned, counts.redelivered) == (2, 1, 0)
    assert rest(queue) == [3, 4]


def test_it_is_over_when_all_producers_have_closed_and_nothing_can_come_back() -> None:
    queue = contents(1, producers=2)
    waits = session(queue, "b", "b-0")
    taken = take(queue, "a-0", 1)
    queue.close("producer-0", 1)
    queue.close("producer-0", 2)  # a restart counts once
    assert not queue.is_over(waits)
    queue.close("producer-1", 1)
    assert not queue.is_over(waits)  # a-0 may die

    queue.settle(taken, 1, 0)

    assert queue.is_over(waits)


def test_two_that_keep_items_for_a_whole_batch_do_not_wait_for_each_other_at_the_end() -> None:
    queue = contents(1, 2)
    batches = [take(queue, worker, 1) for worker in ("a-0", "b-0")]

    queue.close("producer-0", 1)

    assert all(queue.is_over(batch) for batch in batches)


def test_the_next_attempt_of_a_consumer_waits_for_what_the_one_before_had_in_hand() -> None:
    queue = contents(1)
    queue.close("producer-0", 1)
    take(queue, "a-0", 1)
    second = session(queue, "second", "a-0", attempt=2)

    was_over = queue.is_over(second)
    queue.end("a-0", 1, is_well=False)
    late = queue.session("late", "a-0", attempt=1)
    queue.take(second, 1)

    assert (was_over, late) == (False, None)
    assert [number for number, _ in second.in_hand] == [1]
    assert queue.is_over(second)


def test_a_producer_that_has_closed_and_is_started_again_may_put_and_is_waited_for() -> None:
    queue = contents(producers=1)
    waits = session(queue, "a", "a-0")
    queue.close("producer-0", 1)
    assert queue.is_over(waits)
    assert not queue.register("producer-0", 1)

    queue.reopen("producer-0", 1)
    assert not queue.is_over(waits)
    queue.close("producer-0", 1)  # late
    assert not queue.is_over(waits)
    assert queue.register("producer-0", 2)
    queue.close("producer-0", 1)  # late
    assert queue.is_open("producer-0")
    assert queue.stats().closed == ()
    queue.close("producer-0", 2)
    queue.reopen("producer-0", 1)  # late

    assert queue.is_over(waits)
    assert queue.register("producer-0", 3)
    assert queue.stats().closed == ()


def test_cancelling_drops_what_waits_and_counts_it() -> None:
    queue = contents(1, 2, 3)
    taken = take(queue, "a-0", 1)

    queue.cancel()
    queue.settle(taken, 0, 0)  # given back too late

    assert queue.stats().dropped == 3
    assert queue.n_waiting == 0
    assert queue.is_over(taken)


WORKERS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), WORKERS, st.integers(0, 4)),
        st.tuples(st.just("take"), WORKERS, st.integers(0, 4)),
        st.tuples(st.just("settle"), WORKERS, st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("end"), WORKERS, st.booleans()),
        st.tuples(st.sampled_from(["cancel", "end_all"])),
    ),
    max_size=40,
)


@given(STEPS, st.booleans())
def test_the_counts_add_up_whatever_workers_do(steps: list[Any], redeliver: bool) -> None:
    queue = QueueContents(5, None, redeliver)
    attempts = dict.fromkeys("abc", 1)
    for step, *args in steps:
        worker, *numbers = args or [""]
        attempt = attempts.get(worker, 0)
        match step:
            case "put":
                if not queue.is_cancelled:
                    queue.put(session(queue, f"{worker} puts", worker, attempt), [b""] * numbers[0])
            case "take" | "settle":
                getattr(queue, step)(session(queue, worker, worker, attempt), *numbers)
            case "end":
                queue.end(worker, attempt, is_well=numbers[0])
                attempts[worker] += 1
            case _:
                getattr(queue, step)()
                attempts = dict.fromkeys("abc", 1) if step == "end_all" else attempts

        s = queue.stats()
        assert s.put == s.waiting + s.in_hand + s.handled + s.lost + s.dropped
        assert s.taken == s.in_hand + s.handled + s.lost + s.returned + s.redelivered


def test_another_launch_has_all_that_was_in_hand_and_no_producer_that_has_closed() -> None:
    queue = contents(1, 2)
    take(queue, "a-0", 1)
    queue.close("producer-0", 1)

    (report,) = queue.end_all()

    assert report.numbers == (1,)
    assert queue.register("producer-0", 1)
    assert rest(queue) == [1, 2]


def test_an_answer_has_as_many_items_as_fit_and_at_least_one() -> None:
    queue = QueueContents(10, None, True)
    queue.put(session(queue, "put", "producer-0"), [bytes(3 << 20)] * 3)
    taken = session(queue, "a", "a-0")

    assert [len(queue.take(taken, 10)) for _ in range(2)] == [2, 1]


def test_reports_keep_no_more_items_than_there_is_memory_for() -> None:
    queue = QueueContents(10, None, True)
    queue.put(session(queue, "put", "producer-0"), [bytes(40 << 20)] * 2)
    take(queue, "a-0", 1)
    take(queue, "b-0", 1)

    queue.end("a-0", 1, is_well=False)
    queue.end("b-0", 1, is_well=False)

    assert [(each.numbers, len(each.packed)) for each in queue.reports] == [((1,), 0), ((2,), 1)]


def test_a_request_begins_once() -> None:
    taken = QueueSession("a-0", 1)
    taken.begin(7)
    taken.answer = ("ok", 1)

    assert not taken.begin(7)
    assert taken.answer == ("ok", 1)
    assert taken.begin(8)
    assert taken.answer is None
