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
