"""Nodes whose calls run one at a time: what they use belongs to the thread that has made it."""

from __future__ import annotations

import decimal
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import launchpad as lp


class Table:
    """Each method works only in the thread of the constructor."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.database = sqlite3.connect(":memory:")
        self.database.execute("create table rows (row integer)")
        decimal.getcontext().prec = 50

    def insert(self, row: int) -> int:
        """Returns how many rows there are."""
        self.database.execute("insert into rows values (?)", (row,))
        (count,) = self.database.execute("select count(*) from rows").fetchone()
        return int(count)

    def third(self) -> str:
        return str(decimal.Decimal(1) / 3)

    def is_in_the_main_thread(self) -> bool:
        return threading.current_thread() is threading.main_thread()

    def is_in_its_own_thread(self) -> bool:
        return threading.get_ident() == self.thread


class AlarmedTable(Table):
    def wait_for_alarm(self) -> str:
        """Signals have a handler only in the main thread."""
        has_come: list[int] = []
        signal.signal(signal.SIGALRM, lambda number, _: has_come.append(number))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not has_come:
            time.sleep(0.001)
        return "came"


@lp.one_at_a_time
class Decorated(Table):
    pass


class RunningTable(Table):
    """Its run() keeps the thread of the constructor."""

    def __init__(self) -> None:
        super().__init__()
        self.n_inside = 0
        self.most_inside = 0

    def run(self) -> None:
        lp.wait_for_stop()

    def work(self) -> int:
        self.n_inside += 1
        self.most_inside = max(self.most_inside, self.n_inside)
        time.sleep(0.001)
        self.n_inside -= 1
        return self.most_inside


class SavingTable(Table):
    """Saves itself every now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.n_saves = 0

    def save(self) -> Any:
        (count,) = self.database.execute("select count(*) from rows").fetchone()
        self.n_saves += 1
        return count

    def saves(self) -> int:
        return self.n_saves


class HangingTable:
    def hang(self, folder: Path) -> None:
        """Hang until the call is interrupted."""
        try:
            (folder / "up").touch()
            while True:
                time.sleep(0.01)
        finally:
            (folder / "interrupted").touch()


class AsyncTable:
    async def insert(self, row: int) -> int:
        return row


class BatchedTable:
    @lp.batched_handler(batch_size=2)
    def insert(self, row: Any) -> Any:
        return row


def use(table: Any, n_rows: int) -> tuple[int, str]:
    """Inserts by futures and by calls; returns how many rows there are in the end, and a third."""
    futures = [table.futures.insert(row) for row in range(n_rows)]
    for future in futures:
        future.result(60)
    return int(table.insert(0)), str(table.third())
