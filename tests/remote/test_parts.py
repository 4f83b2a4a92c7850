"""Messages in parts: how they are cut and joined, and in which order they are sent."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from typing import Any

import pytest

from launchpad.launch.backends.remote import parts
from launchpad.launch.backends.remote.parts import Part, PartJoiner, SendQueue, cut
from launchpad.launch.large_buffers import LargeBuffer

MiB = 1 << 20


def fail(message: Any, error: Exception) -> None:
    raise error


@pytest.mark.parametrize("size", [0, 1, MiB - 1, MiB, MiB + 1, 3 * MiB])
def test_a_message_of_any_size_arrives(size: int) -> None:
    content = random.Random(size).randbytes(size)
    joiner = PartJoiner()

    *early, last = [joiner.add(part) for part in cut(0, ("a result", content))]

    assert last == ("a result", content)
    assert not any(early)


def test_no_part_is_larger_than_a_mebibyte() -> None:
    message = [bytes(3 * MiB), [bytes(1000)] * 2000, LargeBuffer(bytearray(2 * MiB + 1))]

    sizes = [len(part.content) for part in cut(0, message)]

    assert max(sizes) == MiB
    assert len(sizes) >= 6


@pytest.mark.parametrize("size", [0, 5, 2 * MiB + 5])
def test_the_bytes_of_a_large_buffer_arrive(size: int) -> None:
    content = random.Random(size).randbytes(size)
    joiner = PartJoiner()

    *_, (name, buffer) = [joiner.add(part) for part in cut(0, ("a", LargeBuffer(content)))]

    assert name == "a"
    assert bytes(buffer.memory) == content


def test_parts_of_several_messages_may_arrive_in_turn() -> None:
    contents = [random.Random(number).randbytes(3 * MiB) for number in range(3)]
    joiner = PartJoiner()

    joined = []
    for in_turn in itertools.zip_longest(*(cut(n, content) for n, content in enumerate(contents))):
        joined += [joiner.add(part) for part in in_turn]

    assert [message for message in joined if message is not None] == contents


def test_a_part_that_comes_twice_even_in_two_threads_does_no_harm() -> None:
    content = random.Random(0).randbytes(20 * MiB)
    joiner = PartJoiner()
    joined = []

    for part in cut(0, content):
        threads = [
            threading.Thread(target=lambda part=part: joined.append(joiner.add(part)))  # type: ignore[misc]
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [message for message in joined if message is not None] == [content]


@pytest.mark.parametrize("size", [1, 3 * MiB])
def test_a_part_that_comes_again_after_its_message_does_no_harm(size: int) -> None:
    joiner = PartJoiner()
    parts_of_message = list(cut(1, bytes(size)))
    first_joined = [joiner.add(part) for part in parts_of_message]
    # An urgent message, whose number is higher, may end before one that has begun earlier.
    (urgent,) = cut(2, "urgent")
    assert joiner.add(urgent) == "urgent"

    again = [joiner.add(part) for part in (*parts_of_message, urgent)]

    assert first_joined[-1] == bytes(size)
    assert again == [None] * len(again)
    assert not joiner._incoming


def take(*events: tuple[int, Any], put: list[Any]) -> list[Any]:
    """Return the messages in the order in which their last parts are sent.

    Args:
        events: (number of parts after which it is put, urgent message).
        put: The other messages.
    """

    async def sent() -> list[Any]:
        queue = SendQueue(fail)
        for message in put:
            queue.put(message)
        queue.end()
        joiner = PartJoiner()
        messages = []
        n_parts = 0
        async for part in queue.parts():
            messages.append(joiner.add(part))
            n_parts += 1
            for after, urgent in events:
                if after == n_parts:
                    queue.put(urgent, is_urgent=True)
                    await asyncio.sleep(0)  # the event loop takes it
        return [message for message in messages if message is not None]

    return asyncio.run(sent())


def test_an_urgent_message_goes_between_the_parts_of_a_large_one() -> None:
    large = bytes(5 * MiB)

    assert take((2, "renew"), (4, "renew"), put=[large, "small"]) == [
        "renew",
        "renew",
        large,
        "small",
    ]


def test_messages_that_are_not_urgent_keep_their_order() -> None:
    messages = [bytes(2 * MiB), "a", bytes(3 * MiB), "b"]

    assert take(put=messages) == messages


def test_a_message_that_cannot_be_pickled_is_reported_and_the_others_are_sent() -> None:
    reported: list[tuple[Any, str]] = []
    function = lambda: None  # noqa: E731

    async def sent() -> list[Part]:
        queue = SendQueue(lambda message, error: reported.append((message, str(error))))
        queue.put(function)
        queue.put("next")
        queue.end()
        return [part async for part in queue.parts()]

    (part,) = asyncio.run(sent())

    assert PartJoiner().add(part) == "next"
    ((message, error),) = reported
    assert message is function
    assert "pickle" in error


def test_a_part_is_pickled_only_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = []
    dumps = parts.pickle.dumps

    def note(message: Any, **options: Any) -> bytes:
        pickled.append(message)
        return dumps(message, **options)

    monkeypatch.setattr(parts.pickle, "dumps", note)

    async def first_part() -> None:
        queue = SendQueue(fail)
        queue.put("a")
        queue.put("b")
        await anext(queue.parts())

    asyncio.run(first_part())

    assert pickled == ["a"]
