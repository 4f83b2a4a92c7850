"""A launching script that calls, lists and reads the logs of a running program."""

import launchpad as lp


class Account:
    def __init__(self, balance: int):
        self.balance = balance

    def withdraw(self, amount: int) -> int:
        self.balance -= amount
        print(f"paid out {amount}")
        return self.balance


program = lp.Program("bank")
program.add_node(lp.CourierNode(Account, 100), label="account")

# part: running
with lp.launch(program, terminal="output_to_files") as running:
    account = running.client("account")
    print(account.withdraw(30), "left")
    for row in running.status():
        print(row.worker, "attempt", row.attempt)
# here the program has been stopped; if it had failed, lp.ProgramFailed would have been raised

print(running.logs("account"), end="")
print([row.state for row in running.status()])
# end
