"""A program looked at, and its plan, without starting anything."""

import launchpad as lp

from dice import make_program

program = make_program()
print(program)
print(program.to_mermaid())
print(lp.plan(program, "local_mp"))
