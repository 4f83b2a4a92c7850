"""A call to every one of many clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from concurrent.futures import Future


class ToAll:
    """Calls all clients, side by side; the answer is the list of theirs.

    If some fail, the first of their exceptions is raised when all are done, with a note on them all.
    """

    name = "broadcast"

    def __init__(self, clients: tuple[Any, ...]) -> None:
        self.clients = clients

    def of(self, clients: Iterable[Any]) -> ToAll:
        return ToAll(tuple(clients))

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> list[Any]:
        futures = self.begin(method, *args, **kwargs)
        try:
            for future in futures:
                future.exception()
        except BaseException:  # interrupted: nobody waits for these any more
            for future in futures:
                future.cancel()
            raise
        return self._gather(futures)

    def submit(self, method: str, /, *args: Any, **kwargs: Any) -> Future[list[Any]]:
        from concurrent.futures import Future

        whole: Future[list[Any]] = Future()
        whole.set_running_or_notify_cancel()
        futures = self.begin(method, *args, **kwargs)
        n_done = itertools.count(1)

        def settle(_: Future[Any]) -> None:
            if next(n_done) < len(futures):
                return
            try:
                whole.set_result(self._gather(futures))
            except BaseException as error:
                whole.set_exception(error)

        for future in futures:
            future.add_done_callback(settle)
        return whole

    def begin(self, method: str, /, *args: Any, **kwargs: Any) -> list[Future[Any]]:
        return [_submit(client, method, args, kwargs) for client in self.clients]

    async def ask(self, method: str, /, *args: Any, **kwargs: Any) -> list[Any]:
        import asyncio

        calls = [getattr(client.aio, method)(*args, **kwargs) for client in self.clients]
        results = await asyncio.gather(*calls, return_exceptions=True)
        failed = {i: each for i, each in enumerate(results) if isinstance(each, BaseException)}
        if failed:
            self._raise_first(failed)
        return results

    def _gather(self, futures: Sequence[Future[Any]]) -> list[Any]:
        """The results of futures that are done."""
        errors = {i: future.exception() for i, future in enumerate(futures)}
        failed = {i: error for i, error in errors.items() if error is not None}
        if failed:
            self._raise_first(failed)
        return [future.result() for future in futures]

    def _raise_first(self, failed: dict[int, BaseException]) -> NoReturn:
        lines = [f"{len(failed)} of {len(self.clients)} clients of this broadcast failed:"]
        lines += [f"  {i}: {self.clients[i]!r}: {_short(error)}" for i, error in failed.items()]
        first = next(iter(failed.values()))
        first.add_note("\n".join(lines))
        raise first


def _submit(client: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
    """A future in any case: one client that cannot be asked must not lose the answers of the others."""
    from concurrent.futures import Future

    try:
        future: Future[Any] = getattr(client.futures, method)(*args, **kwargs)
    except Exception as error:
        future = Future()
        future.set_exception(error)
    return future


def _short(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= 200 else f"{text[:199]}…"
