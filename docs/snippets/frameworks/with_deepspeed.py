"""DeepSpeed: ZeRO stage 2 in bf16, with its own checkpoints."""

import deepspeed
import launchpad as lp
import problem
import torch

# part: train
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
}


def train(group: lp.Collective, steps: int) -> list[float]:
    group.init_torch(default_group=False)
    engine, *_ = deepspeed.initialize(model=problem.make_model(), config=CONFIG)
    folder = lp.current().group_dir
    engine.load_checkpoint(folder)  # the latest, if there is one
    for step in range(engine.global_steps, steps):
        x, y = problem.batch(step, group.rank)
        engine.backward(torch.nn.functional.mse_loss(engine(x.bfloat16()), y.bfloat16()))
        engine.step()
        if engine.global_steps % 5 == 0:
            engine.save_checkpoint(folder)
    return problem.weights(engine)


# end
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, steps=20), "local_mp", preload=["torch._dynamo", "deepspeed"]))
