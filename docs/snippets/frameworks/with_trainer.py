"""The Trainer of transformers: a GPT-2 of random weights."""

import os

import launchpad as lp
import problem
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


# part: data
def make_gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2))


def sentences() -> list[dict[str, torch.Tensor]]:
    words = torch.randint(16, (64, 8), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": sentence, "labels": sentence} for sentence in words]


# part: train
def train(group: lp.Collective, epochs: int) -> list[float]:
    group.init_torch(default_group=False)
    folder = lp.current().group_dir
    complete = sorted(folder.glob("checkpoint-*/trainer_state.json"), key=os.path.getmtime)
    arguments = TrainingArguments(
        str(folder), num_train_epochs=epochs, save_steps=5, use_cpu=True, disable_tqdm=True
    )
    trainer = Trainer(make_gpt2(), arguments, train_dataset=sentences())
    trainer.train(resume_from_checkpoint=str(complete[-1].parent) if complete else None)
    return problem.weights(trainer.model)


# end
if __name__ == "__main__":
    print(
        lp.run(lp.ranks(train, 2, epochs=5), "local_mp", preload=["torch._dynamo", "transformers"])
    )
