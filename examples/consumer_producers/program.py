"""One consumer asks several producers for work at the same time, and adds up what they answer.

The work is counting primes: easy to share out, and everybody knows the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import launchpad as lp


class Producer:
    """Counts the primes in the range it is given, by trial division."""

    def work(self, context: range) -> int:
        return sum(is_prime(n) for n in context)


class Consumer:
    """Cuts the numbers below `limit` into one range per producer and adds their counts."""

    def __init__(self, producers: Sequence[lp.CourierClient[Producer]], limit: int) -> None:
        self._producers = producers
        self._limit = limit

    def run(self) -> None:
        # `lp.submit` returns at once: all producers work at the same time.
        futures = [
            lp.submit(producer.work, context)
            for producer, context in zip(self._producers, self._contexts(), strict=True)
        ]
        counts = [future.result() for future in futures]
        print(f"{' + '.join(map(str, counts))} = {sum(counts)} primes below {self._limit}")
        check(sum(counts), self._limit)

    def _contexts(self) -> list[range]:
        parts = len(self._producers)
        bounds = [self._limit * part // parts for part in range(parts + 1)]
        return [range(start, stop) for start, stop in pairwise(bounds)]


def is_prime(n: int) -> bool:
    """Return whether nothing up to its square root divides `n`."""
    return n > 1 and all(n % divisor for divisor in range(2, math.isqrt(n) + 1))


def count_by_sieve(limit: int) -> int:
    """Count the primes below `limit` in another way: the sieve of Eratosthenes."""
    sieve = bytearray([1]) * limit
    sieve[:2] = bytes(len(sieve[:2]))
    for n in range(2, math.isqrt(limit) + 1):
        sieve[n * n :: n] = bytes(len(sieve[n * n :: n]))
    return sum(sieve)


def check(count: int, limit: int) -> None:
    """Raise unless `count` is the number of primes below `limit`."""
    expected = count_by_sieve(limit)
    if count != expected:
        raise ArithmeticError(f"{expected} primes are below {limit}, not {count}")
    print("the sum is right")


def make_program(producers: int = 4, limit: int = 200_000) -> lp.Program:
    """Return the graph: consumer → each of the producers."""
    program = lp.Program("consumer_producers")
    with program.group("producer"):
        handles = [program.add_node(lp.CourierNode(Producer)) for _ in range(producers)]
    program.add_node(lp.PyClassNode(Consumer, handles, limit), label="consumer")
    return program
