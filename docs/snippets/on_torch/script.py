"""A script that torchrun starts, and a program that runs it."""

import launchpad as lp


# part: script
def main() -> float:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total.item()


# part: program
def run(group: lp.Collective) -> float:
    group.init_torch(default_group=False)  # the variables, and where env:// leads to
    return main()


# end
program = lp.Program("script")
program.add_node(lp.CollectiveNode(run), label="rank", replicas=2)
if __name__ == "__main__":
    print(lp.run(program, "local_mp", preload=["torch"])["rank"])
