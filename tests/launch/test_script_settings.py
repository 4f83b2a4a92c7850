"""What a script sets up of logging, warnings and multiprocessing is so in its workers, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import scripts

LIBRARY = """
import warnings

class ConvergenceWarning(UserWarning):
    pass

class SlowWarning(ConvergenceWarning):
    pass

def fit():
    warnings.warn("did not converge", ConvergenceWarning)
    warnings.warn("is slow", SlowWarning)
"""

SCRIPT = """
import json, logging, logging.config, logging.handlers, multiprocessing, sys, warnings
import library
import launchpad as lp

class Json(logging.Formatter):
    def format(self, record):
        return json.dumps([record.name, record.levelname, record.getMessage()])

class NoSecrets(logging.Filter):
    def filter(self, record):
        return "secret" not in record.getMessage()

logging.config.dictConfig({
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": Json}},
    "filters": {"no secrets": {"()": NoSecrets}},
    "handlers": {
        "out": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stdout"},
        "file": {
            "class": "logging.FileHandler", "filename": "all.log", "formatter": "json",
            "level": "WARNING", "filters": ["no secrets"],
        },
        "mine": {"class": "logging.FileHandler", "filename": "mine.log"},
    },
    "root": {"level": "INFO", "handlers": ["out", "file"]},
    "loggers": {
        "mine": {"level": "DEBUG", "handlers": ["mine"], "propagate": False},
        "noisy": {"level": "ERROR"},
    },
})
logging.getLogger("mine").addFilter(NoSecrets())
logging.getLogger("mute").disabled = True
warnings.filterwarnings("ignore", category=library.ConvergenceWarning)
warnings.filterwarnings("always", category=library.SlowWarning)

def work(queue):
    logging.getLogger("mine").debug("of mine")
    logging.getLogger("mine").debug("of mine, and a secret")
    logging.getLogger("noisy").warning("not to be seen")
    logging.getLogger("mute").error("not to be seen, either")
    logging.info("info")
    logging.warning("a warning")
    logging.warning("a secret")
    library.fit()
    queue.put("worked")

if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        queue = manager.Queue()
        program = lp.Program("settings")
        program.add_node(lp.PyNode(work, queue), label="worker")
        with lp.launch(program, sys.argv[1]) as running:
            running.wait()
        print("in the log:", json.dumps(running.logs("worker").splitlines()))
        print("in the queue:", queue.get(timeout=10))
"""

SET_UP_BY_A_MODULE = """
import logging, sys, warnings
import launchpad as lp
import library

def make_category():
    class Local(UserWarning):
        pass
    return Local

warnings.filterwarnings("error", category=library.SlowWarning)
library.Local = make_category()
library.Local.__module__ = "library"
warnings.filterwarnings("error", category=library.Local)
warnings.simplefilter("ignore")  # before the others: it lets nothing come to them

def work():
    library.fit()
    library.log.warning("once")
    return "worked"

if __name__ == "__main__":
    program = lp.Program("settings")
    program.add_node(lp.PyNode(work), label="worker")
    with lp.launch(program, "local_mp") as running:
        running.wait()
    print("lines:", running.logs("worker").splitlines())
"""

SLOWER_THAN_THE_DEFAULT = """
import socket, sys, threading
import launchpad as lp

socket.setdefaulttimeout(0.05)

class Server:
    def answer(self):
        threading.Event().wait(0.3)
        return "answer"

    def stream(self):
        for number in range(2):
            threading.Event().wait(0.2)
            yield number

def ask(server): return server.answer(), list(server.stream())

if __name__ == "__main__":
    program = lp.Program("sockets")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyNode(ask, server), label="asks")
    print(lp.run(program, sys.argv[1])["asks"])
"""


def test_what_a_module_sets_up_as_it_is_imported_is_not_there_twice(tmp_path: Path) -> None:
    own = """
import logging
log = logging.getLogger("of_the_library")
log.addHandler(logging.StreamHandler())
log.propagate = False
"""
    (tmp_path / "library.py").write_text(LIBRARY + own)

    done = scripts.run(scripts.write(tmp_path, SET_UP_BY_A_MODULE), cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "lines: ['once']" in done.stdout


@pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])
def test_loggers_warnings_and_managers_are_those_of_the_script(
    tmp_path: Path, launch_type: str
) -> None:
    (tmp_path / "library.py").write_text(LIBRARY)

    done = scripts.run(scripts.write(tmp_path, SCRIPT), launch_type, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "in the queue: worked" in done.stdout
    log = done.stdout.partition("in the log: ")[2]
    for line in ("info", "a warning", "a secret", "is slow"):
        assert line in log
    assert '[\\"root\\", \\"INFO\\", \\"info\\"]' in log
    for line in ("of mine", "not to be seen", "did not converge"):
        assert line not in log
    assert (tmp_path / "all.log").read_text() == '["root", "WARNING", "a warning"]\n'
    assert (tmp_path / "mine.log").read_text() == "of mine\n"


@pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])
def test_a_default_timeout_of_sockets_is_not_one_for_calls(
    tmp_path: Path, launch_type: str
) -> None:
    done = scripts.run(scripts.write(tmp_path, SLOWER_THAN_THE_DEFAULT), launch_type)

    assert done.returncode == 0, done.stderr
    assert "[('answer', [0, 1])]" in done.stdout


LOGURU = """
import json, sys
from loguru import logger
import launchpad as lp

def upper(record):
    return record["message"].upper() + "\\n"

logger.remove()
logger.level("FORTUNE", no=33)
logger.add(sys.stderr, format="<{extra[who]}> {level} {message}")
logger.add("all.log", format="{message}", level="WARNING", enqueue=True)
logger.add("upper.log", format=upper)
logger.add("rotated.log", format="{message}", rotation="1 MB")
logger.configure(extra={"who": "all"})
bound = logger.bind(who="me")
logger.warning("of the script")

class Worker:
    def run(self):
        logger.debug("a detail")
        bound.log("FORTUNE", "a fortune")
        logger.complete()

if __name__ == "__main__":
    program = lp.Program("settings")
    with program.group("worker"):
        for _ in range(2):
            program.add_node(lp.PyClassNode(Worker))
    with lp.launch(program, "local_mp") as running:
        running.wait()
    logger.complete()
    print("in the log:", json.dumps(running.logs("worker-0").splitlines()))
"""


def test_the_logger_of_loguru_writes_in_a_worker_where_it_does_in_the_script(
    tmp_path: Path,
) -> None:
    pytest.importorskip("loguru")

    done = scripts.run(scripts.write(tmp_path, LOGURU), cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    log = done.stdout.partition("in the log: ")[2]
    assert "<all> DEBUG a detail" in log
    assert "<me> FORTUNE a fortune" in log
    assert (tmp_path / "all.log").read_text().splitlines() == ["of the script", *["a fortune"] * 2]
    assert sorted((tmp_path / "upper.log").read_text().splitlines()) == [
        *["A DETAIL"] * 2,
        *["A FORTUNE"] * 2,
        "OF THE SCRIPT",
    ]
    # Its script alone may rename it.
    assert (tmp_path / "rotated.log").read_text() == "of the script\n"
