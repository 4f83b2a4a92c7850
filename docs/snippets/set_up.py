"""An error handler of codecs, which each worker has to register for itself."""

import codecs

import launchpad as lp


# part: program
def set_up():
    codecs.register_error("star", lambda error: ("*", error.end))


def spell(text: str) -> str:
    return text.encode("ascii", errors="star").decode()


def make_program() -> lp.Program:
    program = lp.Program("spelling", setup=set_up)
    program.add_node(lp.PyNode(spell, "naïve café"), label="speller")
    return program


# end
if __name__ == "__main__":
    assert lp.run(make_program()) == {"speller": ["na*ve caf*"]}
