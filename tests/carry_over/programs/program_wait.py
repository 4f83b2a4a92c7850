"""Waits for parts of a program in the launching script, and stops it from there."""

import time

from absl import app

import launchpad as lp


def work(seconds):
    time.sleep(seconds)


def wait_for_stop():
    lp.wait_for_stop()


def make_program() -> lp.Program:
    program = lp.Program("program_wait")
    with program.group("work"):
        for i in range(3):
            program.add_node(lp.PyNode(work, 0.2 * i))
    program.add_node(lp.PyNode(wait_for_stop), label="_wait_for_stop")
    return program


def main(_):
    manager = lp.launch(make_program())
    manager.wait(["work"], return_on_first_completed=True)
    print("the first has ended")
    manager.wait(["work"])
    print("all have ended")
    manager.stop_and_wait()
    print("the program has ended")


if __name__ == "__main__":
    app.run(main)
