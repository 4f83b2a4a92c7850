"""The commands `run`, `plan` and `graph`, which take a program's name: MODULE:NAME or FILE.py:NAME."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from absl import flags

import launchpad
from launchpad import command_line
from launchpad.cli import runs
from launchpad.cli.command import CommandError, argument, command
from launchpad.collectives.script import Script
from launchpad.graph.picture import Picture, dot, mermaid, picture_of
from launchpad.graph.svg import svg
from launchpad.launch import launch as launching
from launchpad.launch import registry, script_flags
from launchpad.launch.planning import interpreter
from launchpad.program import Program, ranks
from launchpad.resources import Resources
from launchpad.restart_policy import RestartPolicy

_FORMATS = {"mermaid": mermaid, "dot": dot, "svg": svg}
_OF_RANKS = ("gpus", "max_restarts", "preload", "state")
_THREADS = ("local_mt", "test_mt")
_SUFFIXES = {".svg": "svg", ".dot": "dot", ".gv": "dot"}


class _ScriptAndWords(argparse.Action):
    """Takes the script. With --ranks, the words after it are the script's, else they are options of `run`."""

    def __call__(
        self, parser: argparse.ArgumentParser, options: argparse.Namespace, values: Any, *_: object
    ) -> None:
        options.program, *words = values
        options.words = []
        if options.ranks is not None:
            options.words = words
        elif words and not words[0].startswith("-"):
            parser.error(f"{words[0]!r}: words for the script come after `--`")
        elif words:
            parser.parse_args([*words, options.program], options)


@command(
    argument(
        "program",
        metavar="FILE.py|MODULE[:NAME]",
        nargs=argparse.PARSER,
        action=_ScriptAndWords,
        help="a script, train.py or examples.hello_world, which launches by itself; or, with a NAME, a"
        " program or a function that makes one: train.py:make_program",
    ),
    argument(
        "--launch_type", help="as LP_LAUNCH_TYPE: how what names no launch type itself is run"
    ),
    argument(
        "--ranks",
        type=int,
        metavar="N",
        help="run a script in N processes with torchrun's variables; without a launch type, on this host."
        " All words after the script are its own, apart from --lp_… flags",
    ),
    argument("-m", dest="is_module", action="store_true", help="it is a module, whatever its name"),
    argument("--gpus", type=float, default=0, metavar="G", help="with --ranks: GPUs of each rank"),
    argument(
        "--max_restarts",
        type=int,
        metavar="N",
        help="with --ranks: how often a minute all ranks may start again because one has failed; by"
        " default 3",
    ),
    argument(
        "--preload", metavar="MODULES", help="with --ranks: modules imported once, as torch,numpy"
    ),
    argument(
        "--state",
        metavar="FOLDER",
        help="with --ranks: keep the ranks' files there, as lp.launch does",
    ),
    script_flags.add_flags,
    usage="%(prog)s FILE.py|MODULE[:NAME] [--launch_type TYPE] [-- FLAG …]\n"
    "       %(prog)s --ranks N [--launch_type TYPE] [--gpus G] [--max_restarts N] [--preload MODULES]"
    " [--state FOLDER] [-m] FILE.py|MODULE [WORD …]",
)
def run(options: argparse.Namespace) -> None:
    """Run a script or a module: as python does, or in ranks as torchrun does. Or launch a program of it."""
    if options.launch_type:
        os.environ["LP_LAUNCH_TYPE"] = options.launch_type
    if options.ranks is not None:
        _run_in_ranks(options)
        return
    for name in _OF_RANKS:
        if getattr(options, name):
            raise CommandError(f"--{name} is for a script that runs with --ranks N")
    where, name = _split(options.program)
    if not name:
        _become_python(options)
    sys.argv[:] = [where, *options.flags]
    module, program = _find(options.program, options.flags, up_to_launch=False)
    # A launch sends the modules beside the script to a cluster. This says which file is the script.
    main = sys.modules["__main__"]
    main.__file__ = module.__file__
    main.__spec__ = None if where.endswith(".py") else module.__spec__
    # This process waits for the program when it exits.
    launching.launch(program)


@command(
    argument(
        "program",
        metavar="MODULE:NAME",
        help="a program, or a function that makes one: examples.hello_world.program:make_program,"
        " or with a file, train.py:make_program",
    ),
    argument("--launch_type", help="as for lp.launch; else from the flags"),
    argument("--image", help="for kubernetes: what the containers run"),
    usage="%(prog)s MODULE:NAME|FILE.py:NAME [--launch_type TYPE] [--image IMAGE] [-- FLAG …]",
)
def plan(options: argparse.Namespace) -> None:
    """Print what a launch would run, without starting anything; for Kubernetes the manifests.

    A module or a file that launches when it is imported is read as far as that, as is any script whose last
    line is `lp.launch(program)`.
    """
    settings = {"image": options.image} if options.image else {}
    _, program = _find(options.program, options.flags, up_to_launch=True)
    print(launching.plan(program, options.launch_type, **settings).shown())


@command(
    argument(
        "drawn",
        metavar="MODULE:NAME",
        nargs="?",
        help="a program, or a function that makes one, as for plan; without a colon it is a run",
    ),
    argument(
        "--format", choices=list(_FORMATS), help="the default is that of FILE's name, or mermaid"
    ),
    argument("-o", "--output", metavar="FILE", help="else it is printed"),
    usage="%(prog)s [MODULE:NAME|FILE.py:NAME|RUN] [--format mermaid|dot|svg] [-o FILE] [-- FLAG …]",
)
def graph(options: argparse.Namespace) -> None:
    """Draw a program, without starting anything, or one that runs: boxes are groups, arrows edges.

    Mermaid is what GitHub and notebooks show, dot what Graphviz reads; an SVG needs neither.
    """
    suffix = Path(options.output or "").suffix
    draw = _FORMATS[options.format or _SUFFIXES.get(suffix, "mermaid")]
    named = options.drawn or ""
    if ":" in named or named.endswith(".py"):
        _, program = _find(named, options.flags, up_to_launch=True)
        picture = picture_of(program)
    else:
        picture = _picture_of_run(options.drawn)
    text = draw(picture)
    if options.output is None:
        print(text)
        return
    try:
        Path(options.output).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"the picture cannot be written: {error}") from error


def _run_in_ranks(options: argparse.Namespace) -> None:
    """Launch a program of ranks that each run the script."""
    where = options.program
    sys.argv[:] = [where, *options.words]
    script_flags.take_flags()
    words = sys.argv[1:]
    if words and options.flags:
        words.append("--")
    # Leave only the name here: `--help`, for instance, is for the script, and a launch would answer it.
    sys.argv[:] = [where]
    os.environ.setdefault("LP_LAUNCH_TYPE", "local_mp")
    launch_type = registry.launch_type_name(None)
    if launch_type in _THREADS:
        raise CommandError(
            f"launch type {launch_type!r} runs ranks as threads of one process, and a script needs a process"
            " for itself: use local_mp, or a cluster"
        )
    is_file = _is_file(options)
    words += options.flags
    script = (Script.of_file if is_file else Script.of_module)(where, words)
    main = sys.modules["__main__"]
    main.__file__ = script.path
    main.__spec__ = None if is_file else importlib.util.find_spec(where)
    if is_file and not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(script.path)
    restart = RestartPolicy(scope="group")
    if options.max_restarts is not None:
        restart = replace(restart, max_restarts=options.max_restarts)
    program = ranks(script, options.ranks, resources=Resources(gpus=options.gpus), restart=restart)
    preload = options.preload.split(",") if options.preload else None
    # This process waits for the program when it exits.
    launching.launch(program, state=options.state, preload=preload)


def _picture_of_run(word: str | None) -> Picture:
    run = runs.find(word)
    plain = run.picture
    # The record of a run on a cluster must be small, so it has no picture.
    if not plain:
        with runs.connected(run) as client:
            plain = client.picture()
    return Picture.from_dict(plain)


def _become_python(options: argparse.Namespace) -> NoReturn:
    where = options.program
    is_file = _is_file(options)
    if is_file and not os.path.exists(where):
        raise CommandError(f"there is no file {where!r}")
    script = [where] if is_file else ["-m", where]
    python = [sys.executable, *interpreter.flags_here()]
    own_flags = [f"--{name}={value}" for name, value in command_line.remembered().items()]
    os.execv(sys.executable, [*python, *script, *own_flags, *options.flags])


def _is_file(options: argparse.Namespace) -> bool:
    """Return True if the script is named by its file, False if it is a module."""
    where = options.program
    return not options.is_module and (where.endswith(".py") or os.sep in where)


class _LaunchCalled(BaseException):
    """A module has called `lp.launch`, although it should only be imported, or make a program."""


def _find(
    named: str, flags_of_program: Sequence[str], *, up_to_launch: bool
) -> tuple[ModuleType, Program]:
    """Import the module, parse the flags, and make the program, without launching anything.

    Args:
        named: `where:name`. The default for the name is `make_program`.
        up_to_launch: This is for a module that launches when it is imported. If True, it is executed up to
            the launch. If False, it is refused, because workers that are processes import it as well.

    Raises:
        CommandError: there is no such module, program or flag.
    """
    where, name = _split(named)
    with _no_launches():
        try:
            module, launches = _imported(where)
            if launches and not up_to_launch:
                raise CommandError(
                    f"{where} launches a program when it is imported: run it without `:{name}`, or let it"
                    " launch under `if __name__ == '__main__':`"
                )
            program = getattr(module, name or "make_program")
        except (ImportError, AttributeError, ValueError, OSError) as error:
            raise CommandError(f"there is no {named!r} to import from here: {error}") from error
        try:
            _, *unused = flags.FLAGS([sys.argv[0], *flags_of_program])
        except flags.Error as error:
            raise CommandError(f"flags of the program: {error}") from error
        if unused:
            raise CommandError(f"flags of the program: {unused[0]!r} is not a flag")
        try:
            if not isinstance(program, Program) and callable(program):
                program = program()
        except _LaunchCalled:
            raise CommandError(
                f"{named} launches a program, where it should return one: name a function"
                " that makes the program, or the program itself"
            ) from None
    if not isinstance(program, Program):
        raise CommandError(f"{named} gives a {type(program).__name__}, and no lp.Program")
    return module, program


def _split(named: str) -> tuple[str, str]:
    """Return the module or file, and the name in it. The name may be empty."""
    where, colon, name = named.rpartition(":")
    return (where, name) if colon else (named, "")


def _imported(where: str) -> tuple[ModuleType, bool]:
    """Import a module by name or file, up to its end or its launch. Return it, and True if it launches."""
    name = where
    if where.endswith(".py"):
        path = os.path.abspath(where)
        directory, file = os.path.split(path)
        # Do this because `python FILE.py` does the same.
        sys.path.insert(0, directory)
        name = file.removesuffix(".py")
        spec = importlib.util.spec_from_file_location(name, path)
    elif not where:
        raise ValueError("Empty module name")
    else:
        spec = importlib.util.find_spec(where)
        if where in sys.modules:
            return sys.modules[where], False
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {where!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except _LaunchCalled:
        # By now, the module has defined everything that it launches.
        return module, True
    return module, False


@contextlib.contextmanager
def _no_launches() -> Iterator[None]:
    """Make `lp.launch`, and so `lp.run`, raise _LaunchCalled within the block."""
    has_ended = False

    def launch(*args: Any, **kwargs: Any) -> Any:
        # A module may have imported this function within the block, and may call it later.
        if has_ended:
            return real(*args, **kwargs)
        raise _LaunchCalled

    real = launchpad.launch
    places: list[Any] = [launchpad, launching]
    for place in places:
        place.launch = launch
    try:
        yield
    finally:
        has_ended = True
        for place in places:
            place.launch = real
