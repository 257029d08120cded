"""The documentation of this release, as pages of the API server: errors name their pages by these addresses.

An installation may not reach any site, and a site may be of another release. Only the files that the package has are served, by names that it lists itself.
"""

from __future__ import annotations

import functools
import html
import re
from pathlib import Path

FOLDERS = [Path(__file__).parents[1] / "docs", Path(__file__).parents[2] / "docs"]
"""Where the wheel has the files, and where the repository has them."""
HEADERS = {
    "content-security-policy": "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}
_STYLE = (
    "body{max-width:52rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 sans-serif;color-scheme:light dark}"
    "pre{overflow-x:auto;padding:.7rem;border:1px solid #8886}img{max-width:100%}table{border-collapse:collapse}"
    "td,th{border:1px solid #8886;padding:.3rem .6rem;text-align:left;vertical-align:top}"
)
_HEADING = re.compile(r"<h([1-6])>(.*?)</h\1>", re.DOTALL)


@functools.cache
def list_files() -> dict[str, Path]:
    """List the pages and pictures: path below ``docs/`` → file."""
    folder = next((folder for folder in FOLDERS if (folder / "index.md").is_file()), None)
    if folder is None:
        return {}
    files = (file for kind in ("*.md", "*.png", "*.svg") for file in folder.rglob(kind))
    return {file.relative_to(folder).as_posix(): file for file in files}


def render_page(path: str) -> str | None:
    """Render a page as HTML; ``None`` if there is no such page.

    >>> render_page("errors/PositionLost.md")  # doctest: +ELLIPSIS
    '<!doctype html>...'

    :param path: its path below ``docs/``
    """
    file = list_files().get(path)
    if file is None or file.suffix != ".md":
        return None
    from markdown_it import MarkdownIt

    text = re.sub(r"^```\{toctree\}.*?^```$", "", file.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    body = _HEADING.sub(lambda found: f'<h{found[1]} id="{_slug(found[2])}">{found[2]}</h{found[1]}>', body)
    title = html.escape(text.partition("\n")[0].lstrip("# "))
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>{body}</html>'


def _slug(heading: str) -> str:
    """Return the anchor of a heading, as links within the documentation have it."""
    plain = html.unescape(re.sub(r"<[^>]*>", "", heading)).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
