"""multiprocessing's forkserver: it starts N processes, and hears from each.

    bare_processes.py N [MODULE …]

A script of its own that imports nothing else, since every child imports its parent's main module first. The
modules are preloaded by the forkserver.
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
        here, there = context.Pipe()
        process = context.Process(target=echo_once, args=(there,))
        process.start()
        there.close()
        ends.append(here)
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
