"""What happens to a shard in the middle of training."""

import time

import launchpad as lp


def kill_a_shard(running: lp.Running, step: int) -> None:
    """Wait until the first shard has come so far, and kill one."""
    with running.client("shard") as shard:
        while min(shard.applied()) < step:
            time.sleep(0.001)
    with lp.testing.KillWorkers(running, ["shard"], at_most=1) as kills:
        running.wait()
    print(kills)
