"""Tests of a program, for pytest and for unittest."""

import unittest

import launchpad as lp
import pytest

from dice import Table, make_program


# part: alone
def test_a_table_keeps_what_it_is_told():
    table = Table()

    table.write("ann", 7)

    assert table.read() == {"ann": 7}


# part: whole
@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_every_player_plays(launch_type):
    with lp.testing.nothing_left_over():
        running = lp.testing.run(make_program(players=2), timeout_s=30, launch_type=launch_type)

    assert [row.state for row in running.status()] == ["stopped", "succeeded", "succeeded"]
    assert "player 2 of 2" in running.logs("player-1")


# part: pytest
def test_every_player_has_points(lp_launch: lp.testing.Launcher):
    running = lp_launch(make_program(players=2), timeout_s=30)

    running.wait(labels=["player"])

    assert "player 2 of 2" in running.logs("player-1")


# part: handle
def test_a_program_is_driven_by_hand():
    program = make_program(players=1)
    program.groups["player"][0].disable_run()  # the player is built and does not play
    table = program.groups["table"][0].create_handle()

    with lp.launch(program, "test_mt"):
        client = table.dereference()
        client.write("ann", 7)

        assert client.read() == {"ann": 7}


# part: construct
def test_a_players_parts_can_be_looked_at():
    program = make_program(players=1, rolls=5)
    node = program.groups["player"][0]
    node.disable_run()

    with lp.launch(program, "test_mt") as running:
        player = node.construct()  # here, with a client instead of the handle
        player.table.write("bob", player.rolls)

        assert running.client("table").read() == {"bob": 5}


# part: failure
def test_a_player_that_cannot_roll_is_reported():
    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(make_program(players=1, rolls="ten"), timeout_s=30)

    assert caught.value.worker == "player-0"
    assert caught.value.phase == "run"
    assert caught.value.outcome.error_type == "TypeError"


# part: unittest
class DiceTest(unittest.TestCase):
    def test_the_table_is_served(self):
        program = make_program(players=0)

        running = lp.launch(program, "test_mt", test_case=self)  # stopped when the test ends

        self.assertEqual(running.client("table").read(), {})


# end
