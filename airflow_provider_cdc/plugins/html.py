"""Pieces of HTML for the plugin's pages, without scripts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import quote

from airflow_provider_cdc.hooks import status_texts

STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: .2rem 0 1rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
th { font-weight: 600; white-space: nowrap; } td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0; } dt { font-weight: 600; } dd { margin: 0; }
code, pre { font: 12.5px ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; }
.bad { color: #c0262d; } .good { color: #1a7f37; } .quiet { opacity: .65; }
progress { width: 9rem; vertical-align: middle; }
"""


class Raw(str):
    """HTML that is not escaped again."""


def ago(moment: datetime | None) -> str:
    """How long ago something was, with the exact moment as a tooltip."""
    if moment is None:
        return "never"
    return Raw(
        f"<span title='{moment.astimezone(UTC).isoformat(timespec='seconds')}'>{status_texts.age(moment)}</span>"
    )


def link(base: str, text: str, connector: str, batch: int | None = None) -> str:
    """A link to the page of a connector, or of one of its batches."""
    path = f"{base}/connectors/{quote(connector, safe='')}" + ("" if batch is None else f"/batches/{batch}")
    return Raw(f'<a href="{escape(path)}">{escape(text)}</a>')


def cell(value: Any) -> str:
    """One cell of a table; numbers stand at its right."""
    if isinstance(value, Raw):
        return f"<td>{value}</td>"
    if isinstance(value, int):
        return f"<td class=n>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table with titles."""
    titles = "".join(f"<th>{escape(h)}</th>" for h in head)
    lines = "\n".join("<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows)
    return Raw(f"<table>\n<tr>{titles}</tr>\n{lines}\n</table>")


def facts(known: Iterable[tuple[str, str]]) -> str:
    """A list of names and values."""
    lines = (f"<dt>{escape(k)}</dt><dd>{v if isinstance(v, Raw) else escape(v)}</dd>" for k, v in known)
    return Raw(f"<dl>{''.join(lines)}</dl>")


def page(base: str, title: str, parts: Iterable[str], *, refresh_s: int | None = None) -> str:
    """A whole page.

    :param refresh_s: the browser reloads the page after this time
    """
    body = "\n".join(parts)
    refresh = "" if refresh_s is None else f'<meta http-equiv="refresh" content="{refresh_s}">'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{refresh}<title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n"
        f'<a href="{escape(base)}/">CDC connectors</a>\n<h1>{escape(title)}</h1>\n{body}\n</body></html>\n'
    )
