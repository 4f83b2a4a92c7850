"""batched_handler: the calls of many callers, answered by one call of the method."""

from __future__ import annotations

import contextlib
import datetime
import gc
import inspect
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from typing import Any

import cloudpickle
import numpy as np
import pytest

import launchpad as lp
from launchpad import courier
from launchpad.courier.batching import queue as batch_queue
from launchpad.courier.call_stack import current_call
from tests.courier.conftest import DEADLINE_S, Gate, exit_code_of_child, in_background

NEVER_S = 600.0  # a timeout that no test reaches: only a full batch is run


@pytest.fixture(autouse=True)
def threads_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_queue, "IDLE_S", 0.02)


class Doubler:
    """Remembers the batches it got."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    @lp.batched_handler(4, timeout=NEVER_S)
    def double(self, x: Any) -> Any:
        """Twice x."""
        self.batches.append(x)
        return x * 2

    @lp.batched_handler(4, timeout=datetime.timedelta(milliseconds=1))
    def soon(self, x: Any) -> Any:
        self.batches.append(x)
        return x * 2

    @lp.batched_handler(4, timeout=0.001, pad_batch=True)
    def padded(self, x: Any) -> Any:
        self.batches.append(x)
        return x * 2


def outcomes(calls: list[Any]) -> list[Any]:
    """What each of these calls returned or raised."""
    assert all(call.wait(20) for call in calls)
    found = []
    for call in calls:
        try:
            found.append(call.result())
        except BaseException as error:
            found.append(error)
    return found


def call_with_each(fn: Any, arguments: Iterable[Any]) -> list[Any]:
    """What calls with these arguments, made at once, returned or raised."""
    return outcomes([fn.courier_promise(argument) for argument in arguments])


Hold = Callable[[int, float], tuple[Any, list[Any]]]


@pytest.fixture
def hold(gate: Gate) -> Hold:
    """A method with its first batch, of a call with 0, under way until the gate opens; and its batches."""

    def start(size: int, timeout: float) -> tuple[Any, list[Any]]:
        batches: list[Any] = []

        @lp.batched_handler(size, timeout=timeout)
        def method(x: Any) -> Any:
            batches.append(x.tolist())
            gate.wait(20)
            return x

        method.courier_promise(0)
        assert gate.begun.wait(20)
        return method, batches

    return start


# --- answers -------------------------------------------------------------------------------------


def test_calls_are_answered_together_and_each_gets_its_own_result(serve, connect, address) -> None:
    doubler = Doubler()
    server = serve(address)
    server.bind_object(doubler)
    client = connect(address)

    futures = [client.futures.double(x=np.full(3, i, np.float32)) for i in range(8)]
    results = [future.result(20) for future in futures]

    assert [batch.shape for batch in doubler.batches] == [(4, 3), (4, 3)]
    assert all(result.dtype == np.float32 for result in results)
    assert [result.tolist() for result in results] == [[2.0 * i] * 3 for i in range(8)]


def test_a_batch_that_does_not_fill_is_run_when_the_time_of_its_first_call_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_queue, "IDLE_S", 0.3)

    @lp.batched_handler(2, timeout=0.05)
    def when(x: Any) -> Any:
        return np.full(len(x), time.monotonic())

    when(0)
    time.sleep(0.1)  # longer than the timeout: that of the last batch must not count
    began = time.monotonic()

    assert when(1) - began >= 0.05


@pytest.mark.parametrize("timeout", [0, 0.001])
def test_batches_fill_up_while_all_threads_are_busy_and_without_a_timeout_wait_for_no_more(
    hold: Hold, gate: Gate, timeout: float
) -> None:
    method, batches = hold(4, timeout)
    calls = [method.courier_promise(i) for i in range(10)]
    gate.set()

    assert outcomes(calls) == list(range(10))
    assert batches == [[0], [0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("form", ["array", "list", "dict"])
def test_a_method_may_fill_the_array_that_it_returns_again(serve, connect, address, form) -> None:
    class Policy:
        def __init__(self) -> None:
            self.out = np.zeros((8, 20_000))

        @lp.batched_handler(batch_size=8, timeout=0)
        def act(self, x: Any) -> Any:
            found = self.out[: len(x)]
            found[:] = x[:, None]
            return {"array": found, "list": list(found), "dict": {"q": found}}[form]

    serve(address).bind_object(Policy())
    client = connect(address)
    futures = [client.futures.act(i) for i in range(100)]

    answers = [future.result(DEADLINE_S) for future in futures]

    found = [answer["q"] if form == "dict" else answer for answer in answers]
    assert [set(each) for each in found] == [{i} for i in range(100)]


def test_a_short_batch_is_padded_for_methods_that_know_one_shape_only() -> None:
    doubler = Doubler()

    assert doubler.padded(np.arange(2)).tolist() == [0, 2]
    assert [batch.tolist() for batch in doubler.batches] == [[[0, 1]] * 4]


def test_nothing_is_stacked_for_a_method_without_arguments() -> None:
    answer: Any = lp.batched_handler(2, timeout=NEVER_S)(lambda: ["a", "b"])

    assert outcomes([answer.courier_promise() for _ in range(2)]) == ["a", "b"]


# --- threads -------------------------------------------------------------------------------------


def test_more_clients_than_server_threads_meet_in_one_batch(serve, connect, address) -> None:
    @lp.batched_handler(64, timeout=NEVER_S)
    def total(x: Any) -> Any:
        return np.full(len(x), x.sum())

    serve(address, size=1, name="small", total=total, echo=lambda x: x)
    *clients, last = [connect(address) for _ in range(64)]

    results = [in_background(client.total, 1) for client in clients]
    echoed = last.echo("in between")
    n_threads = sum(thread.name.startswith("small-") for thread in threading.enumerate())
    results.append(in_background(last.total, 1))

    assert [result.result(20) for result in results] == [64] * 64
    assert echoed == "in between"
    assert n_threads < 32  # far fewer than there are calls that wait


@pytest.mark.parametrize("n", [1, 3])
def test_as_many_batches_run_side_by_side_as_allowed_and_no_more(n: int) -> None:
    barrier = threading.Barrier(n)
    running, most = [], []

    @lp.batched_handler(2, max_parallelism=n, timeout=NEVER_S)
    def meet(x: Any) -> Any:
        running.append(1)
        most.append(len(running))
        time.sleep(0.001)
        barrier.wait(20)
        running.pop()
        return x

    assert call_with_each(meet, range(12)) == list(range(12))
    assert max(most) == n


def test_no_call_is_lost_or_answered_twice_under_load() -> None:
    @lp.batched_handler(16, max_parallelism=3, timeout=0.001)
    def negate(x: Any) -> Any:
        return -x

    def call_often(start: int) -> list[int]:
        return [negate(i) for i in range(start, start + 100)]

    results = [in_background(call_often, 100 * i) for i in range(8)]

    found = [value for result in results for value in result.result(60)]
    assert found == [-i for i in range(800)]


def test_threads_end_when_there_is_nothing_to_do() -> None:
    doubler = Doubler()
    doubler.soon(1)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("batch-")]

    for thread in threads:
        thread.join(20)

    assert [thread.name for thread in threads] == ["batch-Doubler.soon"]
    assert not threads[0].is_alive()
    assert doubler.soon(2) == 4  # and another one is started when it is needed


def test_nothing_of_one_callers_context_reaches_a_batch(client_of) -> None:
    @lp.batched_handler(1)
    def look(x: Any) -> list[Any]:
        return [current_call.get()]

    client = client_of(
        look=look, has_context=lambda: current_call.get() is not None, call_timeout=20.0
    )

    assert client.has_context()
    assert client.look(1) is None


def test_the_thread_belongs_to_the_worker_that_serves() -> None:
    class Named:
        @lp.batched_handler(1)
        def name(self, x: Any) -> list[str]:
            return [lp.current().name] * len(x)

    def ask(client: Any) -> None:
        print(f"it said {client.name(0)}")

    program = lp.Program("named")
    server = program.add_node(lp.CourierNode(Named), label="server")
    program.add_node(lp.PyNode(ask, server), label="client")

    running = lp.testing.run(program, launch_type="test_mt")

    assert "it said server-0" in running.logs("client")


def test_a_call_from_within_its_own_batch_is_refused_for_it_would_wait_for_ever() -> None:
    @lp.batched_handler(1)
    def recursive(x: Any) -> Any:
        return recursive(x)

    with pytest.raises(RuntimeError, match="from within its own batch"):
        recursive(1)


def test_a_forked_child_starts_threads_of_its_own() -> None:
    doubler = Doubler()
    doubler.soon(1)

    assert exit_code_of_child(lambda: int(doubler.soon(2))) == 4
    assert doubler.soon(2) == 4


# --- failures ------------------------------------------------------------------------------------


ENDLESS: dict[str, Any] = {}
ENDLESS["self"] = ENDLESS


@pytest.mark.parametrize(
    ("args", "kwargs", "kind", "words"),
    [
        (("a",), {}, ValueError, r"args\[0\]: .* type int expected, .* str given.*3 of the 4"),
        ((0.5,), {}, ValueError, r"args\[0\]: .* type int expected, .* float given.*3 of the 4"),
        ((), {"x": 3}, ValueError, "args: a tuple of 1 expected, a tuple of 0 given"),
        ((ENDLESS,), {}, RecursionError, "maximum recursion"),
    ],
    ids=["another type", "a float", "by name", "cannot be looked into"],
)
def test_a_call_that_differs_from_the_others_fails_alone_though_it_came_first(
    args: tuple[Any, ...], kwargs: dict[str, Any], kind: type[Exception], words: str
) -> None:
    doubler = Doubler()

    calls = [doubler.double.courier_promise(*args, **kwargs)]
    calls += [doubler.double.courier_promise(i) for i in range(3)]
    odd_one, *others = outcomes(calls)

    with pytest.raises(kind, match=words):
        raise odd_one
    assert others == [0, 2, 4]
    assert [batch.shape for batch in doubler.batches] == [(3,)]


def test_of_two_equal_groups_the_one_wins_that_is_like_the_batch_before() -> None:
    @lp.batched_handler(2, timeout=NEVER_S)
    def double(x: Any) -> Any:
        return x * 2

    *_, odd_one, good = call_with_each(double, [0, 1, "a", 3])

    assert good == 6
    with pytest.raises(ValueError, match="type int expected"):
        raise odd_one


def test_a_batch_that_raises_is_not_repeated_and_all_callers_get_it_with_a_note() -> None:
    runs: list[int] = []

    @lp.batched_handler(3, timeout=NEVER_S)
    def fail(x: Any) -> Any:
        runs.append(len(x))
        raise LookupError("not there")

    errors = call_with_each(fail, range(3))

    assert [repr(error) for error in errors] == ["LookupError('not there')"] * 3
    assert "raised for a batch of 3 requests" in errors[0].__notes__[0]
    assert runs == [3]


@pytest.mark.parametrize("is_outside", [True, False])
def test_an_idempotent_batch_is_repeated_so_that_only_the_bad_fail(is_outside: bool) -> None:
    sizes: list[int] = []

    def invert(x: Any) -> Any:
        sizes.append(len(x))
        if (x == 0).any():
            raise ZeroDivisionError("0 has no inverse")
        return 1 / x

    batched = lp.batched_handler(4, timeout=NEVER_S)
    inner, outer = (batched, courier.idempotent) if is_outside else (courier.idempotent, batched)
    inverted = outer(inner(invert))

    results = call_with_each(inverted, [1, 2, 0, 4])

    assert results[:2] + results[3:] == [1.0, 0.5, 0.25]
    assert isinstance(results[2], ZeroDivisionError)
    assert not hasattr(results[2], "__notes__")
    assert sizes == [4, 1, 1, 1, 1]


def test_a_result_of_another_length_is_an_error_for_all() -> None:
    short: Any = lp.batched_handler(3, timeout=NEVER_S)(lambda x: x[:2])

    for error in call_with_each(short, range(3)):
        with pytest.raises(ValueError, match=r"shape \(2,\), where one item for each of 3"):
            raise error


def test_a_method_that_exits_does_not_take_its_thread_along() -> None:
    @lp.batched_handler(1)
    def leave(x: Any) -> Any:
        if x[0] == 0:
            raise SystemExit("good bye")
        return x

    with pytest.raises(SystemExit, match="good bye"):
        leave(0)
    assert leave(1) == 1


def test_a_cancelled_call_does_not_reach_the_method(hold: Hold, gate: Gate) -> None:
    method, batches = hold(2, 0.001)
    calls = [method.courier_promise(i) for i in (1, 2, 3)]
    is_cancelled = calls[1].cancel()
    gate.set()

    first, cancelled, last = outcomes(calls)

    assert is_cancelled
    assert isinstance(cancelled, CancelledError)
    assert (first, last) == (1, 3)
    assert batches == [[0], [1, 3]]
    assert not calls[0].cancel()


def test_an_exception_keeps_no_arguments_alive_once_it_is_gone() -> None:
    class Argument:
        pass

    @lp.batched_handler(1)
    def fail(x: list[Argument]) -> Any:
        raise LookupError

    def call() -> weakref.ref[Argument]:
        argument = Argument()
        with contextlib.suppress(LookupError):
            fail(argument)
        return weakref.ref(argument)

    gc.disable()
    try:
        argument = call()
        for thread in threading.enumerate():
            if thread.name.startswith("batch-"):
                thread.join(20)

        assert argument() is None
    finally:
        gc.enable()


# --- where it is written -------------------------------------------------------------------------


def test_each_object_has_batches_of_its_own_even_if_it_is_not_hashable() -> None:
    class Equal(Doubler):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

    one, other = Equal(), Equal()

    outcomes([each.double.courier_promise(i) for i in range(4) for each in (one, other)])

    assert [batch.tolist() for batch in one.batches] == [[0, 1, 2, 3]]
    assert [batch.tolist() for batch in other.batches] == [[0, 1, 2, 3]]


def test_a_thread_that_waits_keeps_no_object_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_queue, "IDLE_S", 1.0)
    doubler = Doubler()
    doubler.soon(1)
    reference = weakref.ref(doubler)
    (thread,) = [each for each in threading.enumerate() if each.name.startswith("batch-")]

    del doubler
    while thread.is_alive() and reference() is not None:
        thread.join(0.001)

    assert thread.is_alive()
    assert reference() is None


def test_a_method_is_called_through_its_class_too() -> None:
    class Tripler(Doubler):
        @lp.batched_handler(1)
        def soon(self, x: Any) -> Any:
            return Doubler.soon.__wrapped__(self, x) + x

    tripler = Tripler()

    assert tripler.soon(2) == 6
    assert Doubler.soon(tripler, 2) == 4
    assert super(Tripler, tripler).soon(2) == 4


def test_a_batched_method_looks_like_what_it_was() -> None:
    doubler = Doubler()

    assert doubler.double.__name__ == "double"
    assert doubler.double.__doc__ == "Twice x."
    assert list(inspect.signature(doubler.double).parameters) == ["x"]
    assert doubler.double.__wrapped__(np.array([1, 2])).tolist() == [2, 4]
    assert "Doubler.double" in repr(doubler.double)


def test_a_batched_method_of_a_script_travels_with_its_marks_and_without_its_threads() -> None:
    class Scripted:
        @courier.idempotent
        @lp.batched_handler(2, timeout=0.001)
        def double(self, x: Any) -> Any:
            return x * 2

    Scripted().double(1)  # there are queues and threads now, which stay

    copied = pickle.loads(cloudpickle.dumps(vars(Scripted)["double"]))

    assert copied(Scripted(), 3) == 6
    assert copied.courier_idempotent


def test_slots_without_weakref_are_named() -> None:
    class Slotted:
        __slots__ = ()

        @lp.batched_handler(2)
        def m(self, x: Any) -> Any:
            return x

    with pytest.raises(TypeError, match=r"Slotted has a batched method.*add '__weakref__'"):
        Slotted().m(1)


async def coroutine(x: Any) -> Any:
    return x


def generator(x: Any) -> Any:
    yield x


@pytest.mark.parametrize(
    ("decorate", "kind", "words"),
    [
        (
            lambda: lp.batched_handler(0),
            ValueError,
            "batch_size is a whole number of at least 1, not 0",
        ),
        (lambda: lp.batched_handler(2, 0), ValueError, "max_parallelism is a whole number"),
        (lambda: lp.batched_handler(2, timeout=-1), ValueError, "not negative, not -1"),
        (lambda: lp.batched_handler(2, timeout=float("nan")), ValueError, "not nan"),
        (lambda: lp.batched_handler(lambda x: x), TypeError, "with its parentheses"),
        (lambda: lp.batched_handler(2)(3), TypeError, "decorates a function, not a int"),
        (lambda: lp.batched_handler(2)(coroutine), TypeError, "coroutine is a generator or an a"),
        (lambda: lp.batched_handler(2)(generator), TypeError, "generator is a generator or an a"),
    ],
)
def test_a_mistake_fails_at_the_line_that_makes_it(decorate: Any, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        decorate()
