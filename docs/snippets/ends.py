"""A server that lets go of its database when it has served."""

import pathlib
import sqlite3
import tempfile

import launchpad as lp

FILE = pathlib.Path(tempfile.gettempdir(), "launchpad-fruit.db")


# part: classes
class Prices:
    def __init__(self, path: pathlib.Path):
        self.db = sqlite3.connect(path, check_same_thread=False)
        lp.on_exit(print, "the last line of this worker")

    def price(self, fruit: str) -> int:
        return len(fruit)

    def close(self):
        """Close the database. A worker that ends normally calls this after the last call."""
        self.db.close()
        print("the database is closed")


def shop(prices: Prices) -> None:
    lp.on_exit(print, "bought")
    print("an apple costs", prices.price("apple"))


# part: program
program = lp.Program("shop")
prices = program.add_node(lp.CourierNode(Prices, FILE), label="prices")
program.add_node(lp.PyNode(shop, prices), label="shopper")
# end
if __name__ == "__main__":
    lp.launch(program)
