"""What people type who come from other systems works, or raises an error that says the right name."""

from __future__ import annotations

from typing import Any

import launchpad as lp
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
