"""A learner with two GPUs, four actors that share one, and a server that sees none."""

import os

import launchpad as lp

os.environ.setdefault("LP_FAKE_GPUS", "A100:4")  # GPUs that are not there: this runs anywhere


def show():
    devices = os.environ["CUDA_VISIBLE_DEVICES"]
    print(f"lp.current().gpus: {lp.current().gpus}, CUDA_VISIBLE_DEVICES: {devices!r}")


# part: program
program = lp.Program("gpus")
with program.group("learner", resources=lp.Resources(gpus=2, accelerator="A100", memory="2GiB")):
    program.add_node(lp.PyNode(show))
with program.group("actor", resources=lp.Resources(gpus=0.25)):
    program.add_node(lp.PyNode(show), replicas=4)
program.add_node(lp.PyNode(show), label="server")
# end

# part: refused
try:
    lp.plan(program, "local_mp", resources={"learner": lp.Resources(gpus=8)})
except lp.DefinitionError as error:
    print(error)
# end

# part: launch
print(lp.plan(program, "local_mp"))
lp.launch(program, launch_type="local_mp")
