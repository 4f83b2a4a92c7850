"""A large module, imported once for all workers."""

import sys

import launchpad as lp


# part: program
def work() -> bool:
    return "sklearn" in sys.modules  # it was there before this line


program = lp.Program("preload")
program.add_node(lp.PyNode(work), label="worker", replicas=4)

print(lp.run(program, "local_mp", preload=["sklearn"])["worker"])
# end
