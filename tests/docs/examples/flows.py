"""Examples of what flows between workers: queues, pools, work queues, counters, replay."""

from __future__ import annotations

import threading
import types
from typing import Any

import numpy as np

import launchpad as lp
from tests.docs.examples.runner import DEADLINE_S, Example, example_of, examples, run
from tests.docs.examples.stand_ins import Actor, use
from tests.waiting import until

# --- queues --------------------------------------------------------------------------------------


def queue_of(example: Example, *rows: Any, **options: Any) -> Any:
    """A queue with these rows, as the script has it."""
    queue = example.client_of(lp.QueueNode(**options), is_restarted=True)
    queue.put_many(rows)
    return queue


examples(
    {
        "QueueEmpty QueueStats": lambda example: example.run(queue=queue_of(example)),
        "QueueFull": lambda example: example.finds(
            {"queue": queue_of(example, maxsize=2), "rows": [1, 2, 3]}, rows=[3]
        ),
        "QueueNode QueueHandle": lambda example: example.run_to_end(shards="abcd", train=use),
    }
)


@example_of("QueueReport")
def consumer_has_failed(example: Example) -> None:
    program = lp.Program("rows")
    rows = program.add_node(lp.QueueNode(), label="rows")
    with program.group("consumer", restart=lp.RestartPolicy()):
        program.add_node(lp.PyNode(fail_with_a_row, rows))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="others")  # the program goes on
    running = example.launch(program)
    queue = running.client("rows")
    queue.put("a row")

    assert running.results("consumer", timeout_s=DEADLINE_S) == ["a row"]
    example.run(queue=queue)


def fail_with_a_row(queue: lp.Queue[str]) -> str:
    row = queue.get()
    if lp.current().attempt == 1:
        raise ValueError(row)
    return row


@example_of("QueueClosed")
def producer_has_closed(example: Example) -> None:
    queue = queue_of(example, producers=1)
    queue.close()

    example.run(queue=queue)


@example_of("QueueLost")
def queue_was_started_again(example: Example) -> None:
    queue = queue_of(example, "lost")
    (running,) = example.launched
    with lp.testing.KillWorkers(running, ["worker"], at_most=1) as kills:
        until(lambda: kills.done)
    running.client("worker").put("the next")

    assert example.run(queue=queue)["row"] == "the next"


@example_of("Queue")
def rows_are_produced_and_consumed(example: Example) -> None:
    handled: list[str] = []
    queue = queue_of(example, producers=1)
    names = example.run(paths="ab", read_rows=lambda path: [path] * 2, handle=handled.append)

    names["produce"](queue)
    names["consume"](queue)

    assert handled == ["a", "a", "b", "b"]


# --- pools ---------------------------------------------------------------------------------------


@example_of("PoolNode")
def pool_is_searched(example: Example) -> None:
    def search(workers: list[Any]) -> None:
        with lp.pool(workers) as pool:
            assert list(pool.map(abs, [-1, -2])) == [1, 2]
        lp.stop()

    example.run_to_end(search=search)


@example_of("Pool")
def worker_has_a_pool(example: Example) -> None:
    this = types.SimpleNamespace(_workers=[example.client_of(lp.PoolNode()) for _ in range(2)])

    example.run(self=this, simulate=lambda seed: seed, candidates=[-1, -2])


# --- work queues and counters --------------------------------------------------------------------


def jobs_of(example: Example) -> Any:
    """A work queue with three jobs, as the script has it."""
    queue = example.client_of(lp.WorkQueueNode())
    queue.add_many(["a", "b", "c"])
    queue.close()
    return queue


examples(
    {
        "pool": lambda example: example.finds({}, scores=list(range(1000))),
        "Lease JobCounts": lambda example: example.run(queue=jobs_of(example)),
        "WorkQueueNode CounterNode": Example.run_and_stop,
    }
)


@example_of("FinishedJob")
def jobs_are_done(example: Example) -> None:
    queue = jobs_of(example)
    for lease in queue:
        lease.done(lease.job.upper())

    example.run(queue=queue)


@example_of("WorkQueue")
def jobs_are_given_and_done(example: Example) -> None:
    queue = example.client_of(lp.WorkQueueNode())
    names = example.run()

    worker = threading.Thread(target=names["work"], args=(queue,))
    worker.start()
    names["give"](queue)
    worker.join()


@example_of("Counter")
def steps_are_counted(example: Example) -> None:
    program = lp.Program("counts")
    counter = program.add_node(lp.CounterNode(), label="counter")
    program.add_node(lp.PyNode(act_until_stopped, example.code, counter), label="actor")

    example.launch(program).wait(DEADLINE_S)


def act_until_stopped(code: str, counter: lp.Counter) -> None:
    run(code, {"run_episode": lambda: 600_000})["act"](counter)


# --- replay --------------------------------------------------------------------------------------


def replay_of(example: Example, sampler: lp.replay.Selector | None = None) -> Any:
    """A client of a replay with a transition and a table for sequences."""
    tables = [
        lp.replay.Table(name, sampler or lp.replay.Uniform(), lp.replay.Fifo(), max_size=1000)
        for name in ("transitions", "sequences")
    ]
    return example.client_of(lp.ReplayNode(tables))


def replay_with_a_reward(example: Example) -> Any:
    replay = replay_of(example)
    replay.insert({"reward": 1.0}, {"transitions": 1.0})
    return replay


examples(
    {
        "replay": Example.run_and_stop,
        "ReplayNode ReplayHandle": lambda example: example.run_and_stop(Learner=Actor),
        "replay.TableInfo replay.Batches replay.ReplaySample replay.SampleInfo": (
            lambda example: example.run(
                replay=replay_with_a_reward(example), train_on=lambda batch: 0.0
            )
        ),
    }
)


@example_of("replay.ReplayClient")
def actor_inserts_and_learner_samples(example: Example) -> None:
    replay = replay_of(example, lp.replay.Prioritized(0.6))
    example.code += "\n    break"
    names = example.run(o=np.zeros(4), a=1, step=lambda observations, actions: np.ones(256))

    names["act"](replay)
    names["learn"](replay)


@example_of("replay.NStepWriter")
def transitions_are_written(example: Example) -> None:
    steps = iter([(np.zeros(4), 1.0, False), (np.zeros(4), 1.0, True)])
    environment = types.SimpleNamespace(step=lambda action: next(steps))
    replay = replay_of(example)

    example.run(replay=replay, environment=environment, policy=lambda observation: 1)

    assert replay.info()["transitions"].size > 0


@example_of("replay.Transition")
def targets_are_made_of_transitions(example: Example) -> None:
    replay = replay_of(example)
    with replay.n_step_writer("transitions", n=1, discount=0.99) as writer:
        writer.add_first(np.zeros(4))
        writer.add(1, 1.0, np.zeros(4), discount=1.0, is_last=True)

    names = example.run(replay=replay, values=lambda observations: observations.sum(axis=1))

    assert names["targets"].shape == (32,)


@example_of("replay.SequenceWriter replay.TrajectoryWriter")
def sequences_are_written(example: Example) -> None:
    replay = replay_of(example)
    step = types.SimpleNamespace(observation=np.zeros(4), action=1, reward=1.0)

    example.run(replay=replay, episode=[step] * 25)

    assert replay.info()["sequences"].size > 0
