import argparse

import launchpad as lp


def train(lr: float):
    print("training with", lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.5)
    lp.add_flags(parser)
    args = parser.parse_args()

    program = lp.Program("training")
    program.add_node(lp.PyNode(train, args.lr), label="trainer")
    lp.launch(program)


if __name__ == "__main__":
    main()
