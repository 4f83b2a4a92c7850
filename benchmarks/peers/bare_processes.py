"""A measurement of multiprocessing's forkserver: start N processes, and get an answer from each.

    bare_processes.py N [MODULE …]

The forkserver preloads the modules. This is a script of its own that imports nothing else, because every
child imports its parent's main module first.
"""

import multiprocessing
import sys
import time


def echo_once(pipe):
    pipe.send(pipe.recv())


def seconds(nodes: int, preload: list[str]) -> float:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *preload])
    began = time.perf_counter()
    ends = []
    processes = []
    for _ in range(nodes):
        parent_end, child_end = context.Pipe()
        process = context.Process(target=echo_once, args=(child_end,))
        process.start()
        child_end.close()
        ends.append(parent_end)
        processes.append(process)
    for i, end in enumerate(ends):
        end.send(i)
    assert [end.recv() for end in ends] == list(range(nodes))
    took = time.perf_counter() - began
    for process in processes:
        process.join()
    return took


if __name__ == "__main__":
    print(seconds(int(sys.argv[1]), sys.argv[2:]))
