import launchpad as lp


class Counter:
    def count(self, text: str) -> int:
        return len(text.split())


def main(counter):
    print(counter.count("to be or not to be"))


program = lp.Program("words")
counter = program.add_node(lp.CourierNode(Counter), label="counter")
program.add_node(lp.PyNode(main, counter), label="main")
lp.launch(program)
