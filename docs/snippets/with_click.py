import click
import launchpad as lp


def train(lr: float):
    print("training with", lr)


@click.command()
@click.option("--lr", type=float, default=0.5)
def main(lr: float):
    program = lp.Program("training")
    program.add_node(lp.PyNode(train, lr), label="trainer")
    lp.launch(program)


if __name__ == "__main__":
    main()
