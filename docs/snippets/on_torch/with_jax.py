"""A sum over the devices of all ranks, with jax."""

import launchpad as lp


# part: rank
def add_up(group: lp.Collective) -> float:
    group.init_jax()  # before anything else of jax
    import jax
    from jax.experimental import multihost_utils

    assert jax.process_count() == group.size
    return float(multihost_utils.process_allgather(jax.numpy.ones(1) * group.rank).sum())


# end
program = lp.Program("jax")
with program.group("rank", restart=lp.RestartPolicy(scope="group")):
    program.add_node(lp.CollectiveNode(add_up), replicas=2)
if __name__ == "__main__":
    print(lp.run(program, "local_mp")["rank"])
