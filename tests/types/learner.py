"""The class that the other files here have clients of."""

from __future__ import annotations

from collections.abc import Generator, Iterator


class Learner:
    """Served by a CourierNode; it knows nothing of launchpad."""

    def __init__(self, rate: float = 0.1) -> None:
        self.rate = rate

    def __call__(self, question: bytes) -> bytes:
        return question

    def step(self, batch: int, *, weight: float = 1.0) -> str:
        return str(batch * weight)

    async def predict(self, observation: float) -> float:
        return observation * self.rate

    def rollouts(self, length: int) -> Iterator[int]:
        yield from range(length)

    def numbers(self) -> Generator[int, None, None]:
        yield 1

    @staticmethod
    def version() -> int:
        return 1
