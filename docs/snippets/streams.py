"""Items one after the other, in both directions."""

import launchpad as lp


# part: library
class Library:
    def read(self, text: str):
        yield from text.split()

    def count(self, words) -> int:
        return sum(len(word) for word in words)


# part: ask
def ask(library):
    for word in library.read("to be or not to be"):  # made while they are read, a window ahead
        print(word)
        if word == "or":
            break  # closes the generator

    print(library.count(word for word in ("not", "to", "be")))  # a generator goes the other way


# part: program
program = lp.Program("streams")
library = program.add_node(lp.CourierNode(Library), label="library")
program.add_node(lp.PyNode(ask, library), label="asker")
lp.launch(program)
# end
