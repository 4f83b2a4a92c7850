"""What people type who come from other systems works, or raises an error that says the right name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import launchpad as lp
from launchpad import other_names
from launchpad.courier.client import other_names as names_of_clients
from tests import guesses


class S:
    def f(self, x: int) -> int:
        return x

    def wrong_answers(self, of_context: list[tuple[str, str]]) -> list[str]:
        """Try guesses about the worker's own context."""
        return wrong_answers(of_context, {"me": lp.current(), "lp": lp})


def wrong_answers(guessed: list[tuple[str, str]], names: dict[str, Any]) -> list[str]:
    """Return each guess whose error doesn't have its word, with the error."""
    wrong = []
    for expression, word in guessed:
        try:
            eval(expression, {**names, "program": lp.Program("guess")})
        except Exception as error:
            answer = str(error)
            is_good = word != guesses.WORKS and word in answer
        else:
            answer = "no error"
            is_good = word == guesses.WORKS
        if not is_good:
            wrong.append(f"{expression}: {answer}")
    return wrong


def test_a_guess_works_or_its_error_says_the_right_name() -> None:
    program = lp.Program("guesses")
    handle = program.add_node(lp.CourierNode(S), label="s")
    with lp.launch(program, "test_mt") as running:
        client = running.client("s")
        names = {"lp": lp, "S": S, "handle": handle, "running": running, "client": client}
        guessed = [
            *guesses.MODULE,
            *guesses.PROGRAM,
            *guesses.OPTIONS,
            *guesses.RUNNING,
            *guesses.CLIENT,
        ]
        assert wrong_answers(guessed, names) == []
        assert client.wrong_answers(guesses.CONTEXT) == []
        unanswered = wrong_answers(guesses.UNANSWERED, names)

    n_guesses = len(guessed) + len(guesses.CONTEXT) + len(unanswered)
    assert len(unanswered) < 0.1 * n_guesses
    assert n_guesses > 200


def test_what_the_errors_name_exists() -> None:
    owners = {"lp": lp, "program": lp.Program, "running": lp.Running, "lp.current()": lp.RunContext}
    tables = [*vars(other_names).values(), *vars(names_of_clients).values()]
    texts = [text for table in tables if isinstance(table, Mapping) for text in table.values()]
    named = {
        (owner, path)
        for text in texts
        for owner, path in re.findall(
            r"(?<![\w.])(lp\.current\(\)|lp|program|running)\.(\w+(?:\.\w+)*)", str(text)
        )
    }

    missing = []
    for owner, path in named:
        value: Any = owners[owner]
        for name in path.split("."):
            # Fields of a dataclass, and attributes that __init__ sets, are not attributes of the class.
            is_documented = name in (getattr(value, "__doc__", "") or "")
            value = getattr(value, name, None)
            if value is None and not is_documented:
                missing.append(f"{owner}.{path}")
                break
    assert missing == []
    assert len(named) > 60
