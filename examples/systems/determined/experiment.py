"""An experiment: the data that a user submits."""

from dataclasses import dataclass
from typing import Any

from examples.systems.determined.algorithm import Asha, Grid, Pbt, Random, Searcher

SEARCHERS: dict[str, type[Searcher]] = {"asha": Asha, "random": Random, "grid": Grid, "pbt": Pbt}


@dataclass(frozen=True)
class Experiment:
    """A search for hyperparameters.

    Attributes:
        searcher: One of `SEARCHERS`, which is made with these options.
        slots: How many slots a trial has at once, of any agents. It has as many ranks.
        pool: The pool of its slots: `cpu` or `gpu`.
        priority: The smaller the number, the more urgent, as in Determined.
    """

    name: str
    searcher: str
    options: dict[str, Any]
    slots: int = 1
    pool: str = "cpu"
    priority: int = 42

    def make_searcher(self) -> Searcher:
        return SEARCHERS[self.searcher](**self.options)
