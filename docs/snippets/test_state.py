"""Tests of a class that saves its state."""

import launchpad as lp

from state import Trainer


# part: alone
def test_training_goes_on(tmp_path):
    with lp.testing.worker(state=tmp_path):
        assert Trainer(steps=2).run() == 2

    with lp.testing.worker(state=tmp_path, attempt=2) as me:
        assert me.load() == (2, [1.0, 1.0])
        assert Trainer(steps=9).run() == 9


def test_ranks_cut_the_work():
    with lp.testing.worker("trainer", rank=3, of=4):
        assert lp.current().name == "trainer-3"


# end
