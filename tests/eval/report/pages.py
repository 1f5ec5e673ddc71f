"""What holds of every page: it is well formed, fetches nothing, and what comes from outside stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

HOSTILE = "</script><script>document.title='gone'</script><img src=x onerror=alert(1)> {{ 7*7 }}"


class _Structure(HTMLParser):
    """Which elements are open, ids, and all that a browser could fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "link", "br", "hr", "img", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        assert len(named) == len(attrs), f"{tag} has an attribute twice"
        self.ids += [named["id"]] if "id" in named else []
        names = ("src", "href", "srcset", "action", "poster", "data", "xlink:href")
        self.links += [named[name] for name in names if name in named]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()


def assert_sound(page: str) -> None:
    found = _Structure()
    found.feed(page)
    found.close()
    assert not found.open and len(set(found.ids)) == len(found.ids)
    assert all(link.startswith("data:") or link[1:].partition("?")[0] in found.ids for link in found.links)
    assert not re.search(r"https?://|url\(|@import", page) and "default-src 'none'" in page
    assert "<script>document" not in page and "<img src=x" not in page
    assert page.count("<script") == page.count("</script")
