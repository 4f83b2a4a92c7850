"""Batched methods, and groups of clients, as checkers see them."""

from __future__ import annotations

from concurrent.futures import Future

import launchpad as lp


class Policy:
    @lp.batched_handler(32, max_parallelism=2, timeout=0.01, pad_batch=True)
    def act(self, observations: list[str], *, greedy: list[bool]) -> list[int]:
        return [len(each) for each in observations]

    def version(self, of: str = "") -> int:
        return 1


def use_a_batched_method(policy: lp.CourierClient[Policy]) -> None:
    action: int = policy.act("a single one", greedy=True)  # not a batch: checkers do not mind
    future: Future[int] = lp.submit(policy.act, "another", greedy=False)
    policy.acts("a")  # rejected: "acts"
    print(action + future.result())


def use_groups(policies: list[lp.CourierClient[Policy]]) -> None:
    one: int = lp.round_robin(policies).version("x")
    another: int = lp.shard_by(policies, key=lambda of: of).version("x")
    lp.round_robin(policies).version(3)  # rejected
    lp.round_robin(policies).versions()  # rejected: "versions"
    lp.shard_by(policies)  # rejected: "key"
    lp.shard_by(policies, key="of")  # rejected
    future: Future[int] = lp.submit(lp.round_robin(policies).version, "x")
    every: list[int] = lp.broadcast(policies).version("x")
    n = len(lp.broadcast(policies))
    lp.broadcast(policies[0])  # rejected
    print(one + another + n, every, future)


class Shard:
    def pull(self, keys: list[int]) -> list[float]:
        return [float(key) for key in keys]

    def push(self, worker: str, keys: list[int], values: list[float]) -> None: ...


def use_shards(shards: list[lp.CourierClient[Shard]]) -> None:
    whole = lp.sharded(shards, lp.RangePartition(1000))
    some: list[float] = whole.pull([3, 999])
    whole.push("ada", lp.keys([3]), [0.5])
    whole.push("ada", lp.keys("three"), [0.5])  # rejected
    whole.pulls([3])  # rejected: "pulls"
    lp.sharded(shards, 1000)  # rejected
    future: Future[list[float]] = lp.submit(whole.pull, [3])
    part: list[int] = lp.parts([[1, 2], [3]])
    every: list[None] = lp.scatter(shards).push(
        "ada", lp.parts([[1], [2]]), values=lp.parts([[0.5]] * 2)
    )
    low, high = lp.RangePartition(1000).bounds(0, 2)
    print(some, future, part, every, low + high, lp.HashPartition())
