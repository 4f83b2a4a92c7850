"""A program that fails; it exits with code 1."""

import launchpad as lp


class Prices:
    def __init__(self):
        self.prices = {"apple": 3}

    def price(self, fruit: str) -> int:
        return self.prices[fruit]


def shop(prices):
    print("looking for a pear")
    print(prices.price("pear"))


program = lp.Program("shop")
prices = program.add_node(lp.CourierNode(Prices), label="prices")
program.add_node(lp.PyNode(shop, prices), label="shopper")
lp.launch(program)
