"""Ranks that go back to the newest version that all of them have saved."""

import json
import tempfile

import launchpad as lp


# part: agree
def common_version() -> int | None:
    me = lp.current()
    (me.group_dir / f"{me.replica_index}.json").write_text(json.dumps(me.saved_versions()))
    lp.barrier("all have listed theirs", timeout_s=60)
    lists = [json.loads((me.group_dir / f"{i}.json").read_text()) for i in range(me.num_replicas)]
    return max(set.intersection(*map(set, lists)), default=None)


# part: program
def train(steps: int) -> str:
    me = lp.current()
    begins_at = common_version() or 0
    weights = me.load(version=begins_at) if begins_at else 0.0
    for step in range(begins_at + 1, steps + me.replica_index + 1):  # one rank gets further
        weights += 0.5
        me.save(weights, version=step, keep=3)
    return f"{begins_at} -> {me.saved_versions()}"


program = lp.Program("ranks")
program.add_node(lp.PyNode(train, 4), label="rank", replicas=2)

with tempfile.TemporaryDirectory() as folder:
    for _ in range(2):
        print(lp.run(program, state=folder)["rank"])
# end
