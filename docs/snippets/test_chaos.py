"""A bank whose process dies and hangs, and what its customers see of it."""

import contextlib

import launchpad as lp
import pytest


# part: program
class Bank:
    def __init__(self, history: lp.testing.History):
        self.history = history

    def deposit(self, number: int, amount: int) -> None:
        self.history.ran(number)


class Customer:
    def __init__(self, bank: lp.CourierClient[Bank], history: lp.testing.History):
        self.bank = bank
        self.history = history

    def run(self):
        for number in range(3000):  # each deposit has a number of its own
            with contextlib.suppress(lp.courier.OutcomeUnknown), self.history.call(number):
                self.bank.deposit(number, amount=10)


def make_program(history: lp.testing.History) -> lp.Program:
    program = lp.Program("bank")
    with program.group("bank", restart=lp.RestartPolicy(max_restarts=1000, backoff=0)):
        bank = program.add_node(lp.CourierNode(Bank, history))
    program.add_node(lp.PyClassNode(Customer, bank, history), label="customer")
    return program


# part: kills
@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_no_deposit_is_lost_or_made_twice_although_the_bank_dies(launch_type, tmp_path):
    history = lp.testing.History(tmp_path / "history")
    running = lp.launch(make_program(history), launch_type)

    with lp.testing.KillWorkers(running, ["bank"], seed=7, chance=0.5, every_s=0.05):
        running.wait(60)

    results = history.check().acknowledged  # an AssertionError if anything was lost, or ran twice
    assert results.total() == 3000


# part: stuck
def test_a_deadline_frees_those_who_wait_for_a_bank_that_is_stuck(tmp_path):
    program = make_program(lp.testing.History(tmp_path / "history"))
    program.groups["customer"][0].disable_run()

    with lp.launch(program, "test_mp") as running, running.client("bank") as bank:
        bank.deposit(1, amount=10)
        with lp.testing.freeze(running, "bank-0"), pytest.raises(lp.courier.DeadlineExceeded):
            bank.with_options(timeout_s=0.5).deposit(2, amount=10)


# end
