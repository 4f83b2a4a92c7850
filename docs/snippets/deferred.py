"""A value that cannot travel, built where it is used."""

import sqlite3

import launchpad as lp


class Store:
    def __init__(self, database: sqlite3.Connection):
        self.database = database

    def run(self):
        print(self.database.execute("select 6 * 7").fetchone()[0])


# part: program
program = lp.Program("deferred")
database = lp.Deferred(sqlite3.connect, ":memory:")  # opened in the worker, not here
program.add_node(lp.PyClassNode(Store, database), label="store")
lp.launch(program)
# end
