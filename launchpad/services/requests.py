"""Requests that run only once, however often they arrive.

    client   ClientSession: a key, and a number for each request, which grows
                      a request whose answer was lost goes again with the same number
    server   Conversation: the number of the session's last request, and its answer
                      the same number again: the same answer, and nothing runs

A forked child starts its own sessions. Otherwise the server would take its requests for the parent's.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from launchpad.courier import fork

T = TypeVar("T")


class ClientSession:
    """A client's conversation with a server, one request after the other. Not thread-safe.

    A subclass sets in `renew` all other state that a forked child must not share with its parent.

    Attributes:
        key: A random id that no other session has.
        number: The number of the next request, or of the last one while it has no answer.
    """

    key: str
    number: int

    def __init__(self) -> None:
        self.renew()
        fork.call_in_child(self, type(self).renew)

    def renew(self) -> None:
        """Become a new session without requests. Called when the session is made, and in a forked child."""
        self.key = os.urandom(12).hex()
        self.number = 1


class Conversation(Generic[T]):
    """The server's view of a session.

    Attributes:
        number: The number of the session's last request.
        answer: The answer to that request; None while it waits for one.
    """

    def __init__(self) -> None:
        self.number = 0
        self.answer: T | None = None

    def begin(self, number: int) -> bool:
        """Return True for a new request; False if the last one has come again."""
        if number == self.number:
            return False
        self.number = number
        self.answer = None
        return True


class AnsweredRequests(Generic[T]):
    """The last answer of each session, for the sessions that asked last. It can be pickled.

    Args:
        most: The largest number of sessions to remember.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: OrderedDict[Hashable, tuple[int, T]] = OrderedDict()

    def has(self, key: Hashable, number: int = 1) -> bool:
        """Return True if this request, or a later one of its session, was answered."""
        last_answer = self._answers.get(key)
        return last_answer is not None and number <= last_answer[0]

    def once(self, key: Hashable, act: Callable[[], T], number: int = 1) -> T:
        """Answer a request by `act()`, or repeat the answer if the request was answered before.

        Errors are not remembered: if `act` raised and the request comes again, `act` runs again.
        """
        last_answer = self._answers.get(key)
        if last_answer is not None and number <= last_answer[0]:
            return last_answer[1]
        answer = act()
        self._answers[key] = number, answer
        self._answers.move_to_end(key)
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)
        return answer

    def copy(self) -> AnsweredRequests[T]:
        """Return a copy of the current state. It shares the answers themselves."""
        duplicate = AnsweredRequests[T](self._most)
        duplicate._answers = self._answers.copy()
        return duplicate

    def __getstate__(self) -> dict[str, Any]:
        return {"most": self._most, "answers": list(self._answers.items())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._most = state["most"]
        self._answers = OrderedDict(state["answers"])
