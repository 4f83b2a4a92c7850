"""A check of the links of the built site: each must lead to a file of the site, and to an anchor in it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINK = re.compile(r'<(\w+)[^>]*?\s(?:href|src)="?([^"\s>]*)')
_ANCHOR = re.compile(r'\s(?:id|name)="?([^"\s>]+)')
_LOADED = {"script", "img", "iframe"}


def broken(site: Path) -> Iterator[str]:
    """Yield a message for each link that leads nowhere, and for each file loaded from another host."""
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    anchors = {page: {*_ANCHOR.findall(text), "", "__top"} for page, text in pages.items()}
    for page, text in pages.items():
        for tag, link in sorted(set(_LINK.findall(text))):
            url = urlsplit(link)
            if url.scheme or url.netloc:
                if tag in _LOADED:
                    yield f"{page} loads {link} from another host"
                continue
            # The server shows this page at any depth, so its links begin at the root of the host.
            if page == "404.html":
                continue
            path = posixpath.normpath(
                posixpath.join("/", posixpath.dirname(page), unquote(url.path))
            )
            target = path.lstrip("/") if url.path else page
            if url.path.endswith("/") or target in ("", "."):
                target = posixpath.join(target, "index.html").removeprefix("./")
            if target not in files:
                yield f"{page} links to {link}, and there is no {target}"
            elif unquote(url.fragment) not in anchors.get(target, {""}):
                yield f"{page} links to {link}, and {target} has no such anchor"
