"""A worker whose process has environment variables and flags of its own."""

import os
import sys

import launchpad as lp


def show():
    print(os.environ["OMP_NUM_THREADS"], os.environ["SITE"], sys.argv[-1])


program = lp.Program("environment")
with program.group("worker", resources=lp.Resources(env={"OMP_NUM_THREADS": "1"})):
    program.add_node(lp.PyNode(show))

lp.launch(
    program,
    launch_type="local_mp",
    local_resources={"worker": lp.PythonProcess(args={"verbosity": 2}, env={"SITE": "here"})},
)
