"""A served object that is saved and restored by its own methods, and ranks that exchange files."""

import json
import tempfile

import launchpad as lp


# part: object
class Counter:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, word: str) -> int:
        self.counts[word] = self.counts.get(word, 0) + 1
        return self.counts[word]

    def save(self):
        return self.counts.copy()  # called beside `add`, so of one moment

    def restore(self, saved):
        self.counts = saved


# part: ranks
def exchange(counter: lp.CourierClient[Counter]) -> list[int]:
    me = lp.current()
    number = counter.add("word")
    (me.group_dir / f"rank-{me.replica_index}.json").write_text(json.dumps(number))
    lp.barrier("written", timeout_s=60)
    return sorted(json.loads(file.read_text()) for file in me.group_dir.glob("rank-*.json"))


# part: program
def make_program() -> lp.Program:
    program = lp.Program("counting")
    with program.group("counter", restart=lp.RestartPolicy(save_every_s=60)):
        counter = program.add_node(lp.CourierNode(Counter))
    program.add_node(lp.PyNode(exchange, counter), label="rank", replicas=2)
    return program


with tempfile.TemporaryDirectory() as folder:
    for _ in range(2):
        print("each has read", lp.run(make_program(), state=folder)["rank"])
# end
