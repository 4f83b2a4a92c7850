"""Four mistakes, each found before anything starts."""

import threading

import launchpad as lp

from dice import Player, Table


def without_a_label():
    lp.Program("p").add_node(lp.CourierNode(Table))


def a_handle_of_nowhere():
    program = lp.Program("p")
    table = lp.CourierNode(Table).create_handle()
    program.add_node(lp.PyClassNode(Player, table, rolls=1), label="player")
    lp.plan(program)


def a_value_that_cannot_travel():
    program = lp.Program("p")
    program.add_node(lp.PyNode(print, {"config": {"lock": threading.Lock()}}), label="printer")
    lp.plan(program)


def a_handle_used_as_a_client():
    program = lp.Program("p")
    table = program.add_node(lp.CourierNode(Table), label="table")
    table.read()


for mistake in (
    without_a_label,
    a_handle_of_nowhere,
    a_value_that_cannot_travel,
    a_handle_used_as_a_client,
):
    try:
        mistake()
    except (lp.DefinitionError, AttributeError) as error:
        print(f"{type(error).__name__}: {error}\n")
