"""Settings of `logging` that a worker takes over from the launching script.

    levels, propagation     of all loggers; the root's level is INFO where the script's is Python's default
    filters, `disabled`     of all loggers
    handlers                of the root, and of loggers that are not named like an imported package: those
                            that write to stdout, stderr (in a worker, its log) or a file, with formatter,
                            level and filters. A package sets up its handlers when a worker imports it.

    names of levels         `addLevelName`
    for the whole module    `disable`, `captureWarnings`, `raiseExceptions`

Handlers of other kinds stay behind, because several processes must not share them.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from launchpad.courier.codec import by_value
from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.logs import own_log

_STDOUT = "stdout"
_STDERR = "stderr"
_FILE = "file"


@dataclass(frozen=True)
class HandlerSettings:
    """The settings of one handler.

    Attributes:
        kind: The target that it writes to: stdout, stderr or a file.
        path: The path of the file.
        parts: Its formatter and its filters, pickled.
    """

    kind: str
    level: int
    parts: bytes
    path: str = ""
    encoding: str | None = None

    @classmethod
    def of(cls, handler: logging.Handler) -> HandlerSettings | None:
        """Describe a handler; None if it is of another kind, or cannot be pickled."""
        path = ""
        encoding = None
        if type(handler) is logging.FileHandler:
            kind = _FILE
            path = handler.baseFilename
            encoding = handler.encoding
        elif type(handler) is logging.StreamHandler:
            streams = {id(sys.stdout): _STDOUT, id(sys.__stdout__): _STDOUT}
            streams |= {id(sys.stderr): _STDERR, id(sys.__stderr__): _STDERR}
            kind = streams.get(id(handler.stream), "")
        else:
            kind = ""
        if not kind:
            return None
        try:
            parts = by_value.dumps((handler.formatter, handler.filters), 5, into_main=True)
        except Exception:  # a user's formatter may raise anything
            return None
        return cls(kind, handler.level, parts, path, encoding)

    def made(self) -> logging.Handler:
        """Make the same handler in this process.

        Raises:
            OSError: its file cannot be opened here.
        """
        if self.kind == _FILE:
            handler: logging.Handler = logging.FileHandler(self.path, encoding=self.encoding)
        else:
            handler = logging.StreamHandler(sys.stdout if self.kind == _STDOUT else sys.stderr)
        handler.setLevel(self.level)
        formatter, filters = pickle.loads(self.parts)
        handler.setFormatter(formatter)
        handler.filters = filters
        return handler


@dataclass(frozen=True)
class LoggerSettings:
    """The settings of one logger.

    Attributes:
        filters: Its own filters, pickled; empty if it has no filters, or one that cannot be pickled.
    """

    name: str
    level: int
    propagates: bool
    handlers: tuple[HandlerSettings, ...]
    is_disabled: bool = False
    filters: bytes = b""

    @classmethod
    def of(cls, logger: logging.Logger) -> LoggerSettings:
        handlers = [HandlerSettings.of(handler) for handler in logger.handlers]
        package = logger.name.partition(".")[0]
        # launchpad sets up no handler when it is imported: only `own_log.set_level` does.
        if (
            package in sys.modules
            and package != own_log.LOGGER
            and logger is not logging.getLogger()
        ):
            handlers = []
        settings = tuple(handler for handler in handlers if handler is not None)
        # If some of its handlers stay behind, its lines are only seen if it propagates them.
        propagates = logger.propagate or len(settings) < len(logger.handlers)
        filters = b""
        if logger.filters:
            with contextlib.suppress(Exception):  # a user's filter may raise anything
                filters = by_value.dumps(logger.filters, 5, into_main=True)
        return cls(logger.name, logger.level, propagates, settings, logger.disabled, filters)

    def apply(self) -> None:
        logger = logging.getLogger(self.name)
        logger.setLevel(self.level)
        # A package that preload= has already imported has handlers of its own.
        if not (self.propagates and logger.handlers):
            logger.propagate = self.propagates
        logger.disabled = self.is_disabled
        if self.filters:
            self._add_filters(logger)
        for handler in self.handlers:
            try:
                _add(logger, handler)
            except Exception as error:  # also any error of a user's formatter
                where = handler.path or handler.kind
                if handler.kind == _FILE:  # else the logger's lines would be lost
                    with contextlib.suppress(Exception):
                        _add(logger, replace(handler, kind=_STDERR))
                why = f"{type(error).__name__}: {error}"
                print(
                    f"logger {self.name!r} has no handler here that writes to {where}, as it has in the"
                    f" script: {why}",
                    file=sys.stderr,
                )

    def _add_filters(self, logger: logging.Logger) -> None:
        try:
            for log_filter in pickle.loads(self.filters):
                logger.addFilter(log_filter)
        except Exception as error:
            print(
                f"logger {self.name!r} has no filters here, as it has in the script:"
                f" {type(error).__name__}: {error}",
                file=sys.stderr,
            )


@dataclass(frozen=True)
class LoggingSettings:
    """The settings of all loggers, and of the module.

    Attributes:
        uses_absl: True if the root's handler is absl's, as under `absl.app.run`.
        level_names: Each level with its name.
        disabled: The level given to `logging.disable`.
        captures_warnings: True if `logging.captureWarnings` is on.
        raises: `logging.raiseExceptions`.
    """

    root: LoggerSettings
    others: tuple[LoggerSettings, ...]
    uses_absl: bool
    level_names: tuple[tuple[int, str], ...]
    disabled: int
    captures_warnings: bool
    raises: bool

    @classmethod
    def here(cls) -> LoggingSettings:
        """Read the settings of this process."""
        root = logging.getLogger()
        settings = LoggerSettings.of(root)
        # A worker's log is read after the run, when it is too late to ask for more.
        level = logging.INFO if root.level == logging.WARNING else root.level
        handlers = settings.handlers or _with_format_of(root)
        loggers = [
            logger
            for logger in root.manager.loggerDict.values()
            if isinstance(logger, logging.Logger)
        ]
        return cls(
            replace(settings, level=level, propagates=True, handlers=handlers),
            tuple(LoggerSettings.of(logger) for logger in loggers if _is_set(logger)),
            uses_absl=any(type(handler).__name__ == "ABSLHandler" for handler in root.handlers),
            level_names=tuple(_level_names()),
            disabled=root.manager.disable,
            captures_warnings=warnings.showwarning.__module__ == logging.__name__,
            raises=logging.raiseExceptions,
        )

    def apply(self) -> None:
        """Apply the settings to this process."""
        for level, name in self.level_names:
            logging.addLevelName(level, name)
        logging.disable(self.disabled)
        logging.captureWarnings(self.captures_warnings)
        logging.raiseExceptions = self.raises
        logging.getLogger().setLevel(self.root.level)
        if self.uses_absl:
            from absl import logging as absl_logging

            absl_logging.use_absl_handler()
        else:
            self.root.apply()
        for logger in self.others:
            logger.apply()


class _UnlessAddedAnew(logging.Filter):
    """A filter that silences a script's handler once the worker's code adds one with the same target.

    A module that adds a handler when it is imported does so in the script, and again in the worker.
    """

    def __init__(self, logger: logging.Logger, handler: logging.Handler) -> None:
        super().__init__()
        self._logger = logger
        self._target = _target_of(handler)

    def filter(self, record: logging.LogRecord) -> bool:
        return not any(
            _target_of(handler) == self._target
            for handler in self._logger.handlers
            if not any(isinstance(log_filter, _UnlessAddedAnew) for log_filter in handler.filters)
        )


def _add(logger: logging.Logger, settings: HandlerSettings) -> None:
    handler = settings.made()
    handler.addFilter(_UnlessAddedAnew(logger, handler))
    logger.addHandler(handler)


def _target_of(handler: logging.Handler) -> object:
    """Return what a handler writes to: a path or a stream; the handler itself if it is of another kind."""
    if isinstance(handler, logging.FileHandler):
        return handler.baseFilename
    return handler.stream if type(handler) is logging.StreamHandler else handler


def _level_names() -> Iterator[tuple[int, str]]:
    for name, level in logging.getLevelNamesMapping().items():
        if logging.getLevelName(level) == name:  # else another name for it, such as WARN
            yield level, name


def _is_set(logger: logging.Logger) -> bool:
    is_set = logger.level != logging.NOTSET or not logger.propagate or logger.disabled
    return is_set or bool(logger.handlers) or bool(logger.filters)


def _with_format_of(root: logging.Logger) -> tuple[HandlerSettings, ...]:
    """Return a handler for the log, with the format of a handler that stays behind.

    The handler that stays behind may be a library's handler for the terminal. Return an empty tuple if no
    handler has a format that can be used.
    """
    for handler in root.handlers:
        if type(handler.formatter) is logging.Formatter:
            parts: Any = handler.formatter, []
            with contextlib.suppress(Exception):
                return (HandlerSettings(_STDERR, logging.NOTSET, by_value.dumps(parts, 5)),)
    return ()
