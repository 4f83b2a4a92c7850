"""Wrong clusters."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "workers give the mean change of their rows, not the sum",
        "main_fun.py",
        "parameters = context.add(change)",
        "parameters = context.add(change * len(rows))",
    ),
    Mutation(
        "each row has the same weight, whichever worker has it",
        "servers.py",
        "total = sum(len(rows) * mean for mean, rows in pushed)",
        "total = sum(n_rows / len(pushed) * mean for mean, rows in pushed)",
    ),
    Mutation(
        "a worker that is started again knows which of its rows are in the model",
        "algorithm.py",
        "set(handled)",
        "set()",
    ),
    Mutation(
        "rows that come twice are trained on once",
        "algorithm.py",
        "self._seen.update(row.id for row in rows)",
        "self._seen.clear()",
    ),
    Mutation(
        "a feeder that is started again begins with the partition that it was pushing",
        "nodes.py",
        "me.save(task + 1)",
        "me.save(task + 2)",
    ),
    Mutation(
        "feeders wait while the queue is full",
        "program.py",
        "lp.QueueNode[Row](job.maxsize, n_feeders)",
        "lp.QueueNode[Row](4 * job.maxsize, n_feeders)",
    ),
    Mutation(
        "workers that read get the rows in order",
        "nodes.py",
        "for epoch, n in parts)",
        "for epoch, n in [*parts][::-1])",
    ),
    Mutation(
        "results come in the order of the rows",
        "algorithm.py",
        "zip(self._ids, results, strict=True)",
        "zip(self._ids, reversed(results), strict=True)",
    ),
    Mutation(
        "the names of the absent nodes are in the message",
        "servers.py",
        "{', '.join(sorted(self._absent))}",
        "{', '.join(sorted(self._addresses))}",
    ),
)
