"""One consumer asks several producers for work at the same time; the script adds up their answers.

The work is counting primes: it is easy to share out, and everybody knows the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import launchpad as lp


class Producer:
    """A producer. It counts the primes in a range, by trial division."""

    def work(self, context: range) -> int:
        return sum(is_prime(n) for n in context)


def consume(producers: Sequence[lp.CourierClient[Producer]], limit: int) -> list[int]:
    """Let each producer count in a range of its own, and return their answers."""
    bounds = [limit * part // len(producers) for part in range(len(producers) + 1)]
    # `lp.submit` returns at once: all producers work at the same time.
    futures = [
        lp.submit(producer.work, range(start, stop))
        for producer, (start, stop) in zip(producers, pairwise(bounds), strict=True)
    ]
    return [future.result() for future in futures]


def is_prime(n: int) -> bool:
    """True if no number up to the square root of `n` divides it."""
    return n > 1 and all(n % divisor for divisor in range(2, math.isqrt(n) + 1))


def count_by_sieve(limit: int) -> int:
    """Count the primes below `limit` in another way: the sieve of Eratosthenes."""
    sieve = bytearray([1]) * limit
    sieve[:2] = bytes(len(sieve[:2]))
    for n in range(2, math.isqrt(limit) + 1):
        sieve[n * n :: n] = bytes(len(sieve[n * n :: n]))
    return sum(sieve)


def check(counts: Sequence[int], limit: int) -> None:
    """Raise unless `counts` add up to the number of primes below `limit`."""
    count = sum(counts)
    print(f"{' + '.join(map(str, counts))} = {count} primes below {limit}")
    expected = count_by_sieve(limit)
    if count != expected:
        raise ArithmeticError(f"{expected} primes are below {limit}, not {count}")
    print("the sum is right")


def make_program(producers: int = 4, limit: int = 200_000) -> lp.Program:
    """Return the graph: consumer → each of the producers."""
    program = lp.Program("consumer_producers")
    handles = program.add_node(lp.CourierNode(Producer), label="producer", replicas=producers)
    program.add_node(lp.PyNode(consume, handles, limit), label="consumer")
    return program
