"""A script that connects to Ray by itself, with an environment that Ray makes on every node."""

import os

import launchpad as lp
import ray

# part: connect
ray.init(runtime_env={"env_vars": {"DATA": "/mnt/data"}})  # "pip": […] is given here, too
# end


def tell():
    print("data is in", os.environ["DATA"])


program = lp.Program("own-connection")
program.add_node(lp.PyNode(tell), label="worker")
# part: launch
lp.launch(program, "ray").wait()
# end
