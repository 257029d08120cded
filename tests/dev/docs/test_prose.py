"""The prose of the pages: short sentences, in words that a stranger knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import paths
from tests.test_public_names import DENIED_WORDS

PAGES = sorted({*paths.ROOT.glob("*.md"), *paths.ROOT.glob("docs/**/*.md"), *paths.ROOT.glob(".github/**/*.md")})
GLOSSARY = "glossary.md"
"""It lists the words that it replaces."""
MOST_WORDS = 35
"""Greatest length of a sentence, or of a part of one up to a semicolon or colon."""

_CODE = re.compile(r"```.*?```|<[^>]*>", re.DOTALL)
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*[-*] |\s*\d+\. |#|\|)|(?<=\|)")
_LITERAL, _LINK = re.compile(r"`[^`]*`"), re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+")


def _sentences(page: Path) -> Iterator[str]:
    for paragraph in _PARAGRAPH.split(_CODE.sub("", page.read_text())):
        text = _LINK.sub(r"\1", _LITERAL.sub("X", " ".join(paragraph.split())))
        yield from _SENTENCE.split(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(paths.ROOT)))
def test_sentences_are_short_and_plain(page: Path) -> None:
    sentences = list(_sentences(page))
    assert [s for s in sentences if len(s.split()) > MOST_WORDS] == []
    if page.name != GLOSSARY:
        assert [s for s in sentences if DENIED_WORDS.search(s)] == []
