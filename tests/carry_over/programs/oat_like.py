"""As oat and what is built on it: actors and learners on GPUs of their own, progress by `logging.info`.

The first learner asks the actors by futures, and ends the program.
"""

import argparse
import logging
import os

import launchpad as lp
from launchpad.nodes.python import local_multi_processing


class Store:
    """Kept by one node for all others, as oat's plasma store."""

    def __init__(self, size_mb):
        self._kept = {}
        logging.info("a store of %s MB", size_mb)

    def put(self, key, value):
        self._kept[key] = value
        return key

    def get(self, key):
        return self._kept.pop(key)


class Actor:
    def __init__(self, store, args):
        self._store = store
        self._version = 0
        self._gpus = os.environ["CUDA_VISIBLE_DEVICES"]

    def step(self, prompts):
        return self._store.put(self._gpus, [f"{prompt} by {self._gpus}" for prompt in prompts])

    def update_weight(self, version):
        self._version = version

    def get_version(self):
        return self._version


class Learner:
    def __init__(self, world_size, rank, local_rank, is_master, args, actors, store):
        self._rank, self._is_master, self._args = rank, is_master, args
        self._world_size, self._actors, self._store = world_size, actors, store

    def run(self):
        gpus = os.environ["CUDA_VISIBLE_DEVICES"]
        logging.info("rank %s of %s has GPU %s", self._rank, self._world_size, gpus)
        if not self._is_master:
            lp.wait_for_stop()
            return
        for step in range(self._args.steps):
            futures = [actor.futures.step([f"prompt {step}"]) for actor in self._actors]
            answers = [self._store.get(future.result()) for future in futures]
            for actor in self._actors:
                actor.update_weight(step + 1)
            logging.info("step %s: %s", step, answers)
        versions = [actor.get_version() for actor in self._actors]
        logging.info("done at versions %s", versions)
        lp.stop()


def get_program(args):
    program = lp.Program("oat")
    gpus = list(range(args.gpus))
    actor_gpus, learner_gpus = gpus[: args.gpus // 2], gpus[args.gpus // 2 :]
    store = program.add_node(lp.CourierNode(Store, size_mb=64), label="ipc_server_0")
    actors, local_resources = [], {}
    for gpu in actor_gpus:
        label = f"actor_0_{gpu}"
        actors.append(program.add_node(lp.CourierNode(Actor, store, args), label=label))
        env = {"CUDA_VISIBLE_DEVICES": str(gpu)}
        local_resources[label] = local_multi_processing.PythonProcess(env=env)
    logging.warning("=== GPU allocations: actors %s, learners %s", actor_gpus, learner_gpus)
    size = len(learner_gpus)
    for rank, gpu in enumerate(learner_gpus):
        label = f"learner_0_{rank}"
        node = lp.PyClassNode(Learner, size, rank, rank, rank == 0, args, actors, store)
        program.add_node(node, label=label)
        env = {"CUDA_VISIBLE_DEVICES": str(gpu)}
        local_resources[label] = local_multi_processing.PythonProcess(env=env)
    return program, local_resources


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2)
    args, _ = parser.parse_known_args()
    program, local_resources = get_program(args)
    lp.launch(
        program,
        launch_type="local_mp",
        local_resources=local_resources,
        terminal="current_terminal",
    )


if __name__ == "__main__":
    main()
