"""A sweep by a pool, from the launching script."""

import launchpad as lp


# part: evaluate
@lp.idempotent  # it may run twice: of a worker that dies, another takes over all its work
def evaluate(x: int) -> int:
    return -((x - 30) ** 2)


# part: program
program = lp.Program("sweep")
with program.group("worker", restart=lp.RestartPolicy()):
    program.add_node(lp.PoolNode(), replicas=2)

with lp.launch(program) as running, lp.pool(running.clients("worker")) as pool:
    scores = list(pool.map(evaluate, range(100)))
    future = pool.submit(lambda best: f"the best is {best}", scores.index(max(scores)))
    print(future.result())
# end
