"""Commands and examples on the pages of the documentation: fenced blocks, and commands in code within a line."""

from __future__ import annotations

import functools
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dev import paths

SHELL = ("bash", "console")
"""Languages of blocks with commands: of a ``console``, the lines behind a prompt; the rest is output."""
PROGRAMS = re.compile(
    r"(?:airflow|airflow-cdc|asncap|aws|az|cd|cp|curl|db2|dev/\w+|docker|echo|export|gcloud|git|helm|kafka-[\w.-]+|kubectl|mkdir|mongosh|mysql|pip"
    r"|python3?|rm|source|spark-submit|sqlplus|sudo|uv)"
)
"""First words of commands."""
_FENCE = re.compile(r"^( *)```([\w{}+-]*) *$")
_ASSIGNMENTS = re.compile(r"^(?:[A-Z][A-Z0-9_]*=[^\s$]+ +)+|^[A-Z]+=\$\(")
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_MENTION = re.compile(r"airflow cdc [a-z][^`\n#\[)]*")
_COMMENT = re.compile(r"\s+#\s.*$")


class Block(NamedTuple):
    """A fenced block of a page, without its indentation."""

    page: str
    line: int
    language: str
    text: str


class Command(NamedTuple):
    """A command on a page, without its prompt, its comment and the assignments of variables before it."""

    page: str
    line: int
    text: str
    whole: bool
    """It stands in a block, to be typed as it is."""

    @property
    def program(self) -> str:
        return self.text.split()[0]


def list_pages() -> list[str]:
    """List the pages of the documentation, and the README, by their paths in the repository."""
    pages = [*(paths.ROOT / "docs").rglob("*.md"), paths.ROOT / "README.md"]
    return sorted(str(page.relative_to(paths.ROOT)) for page in pages)


@functools.cache
def list_blocks(page: str) -> list[Block]:
    """List the fenced blocks of a page."""
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(_read(page), 1):
        fence = _FENCE.match(line)
        if fence and opened is None:
            opened, lines = (number, fence[2]), []
        elif fence and not fence[2] and opened is not None:
            found.append(Block(page, *opened, textwrap.dedent("\n".join(lines)) + "\n"))
            opened = None
        else:
            lines.append(line)
    return found


def split_commands(block: Block) -> list[Command]:
    """Split a block into its commands, each in one line."""
    found, started = [], ""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "console" and not line.startswith("$ "):
            continue
        started += line.removeprefix("$ ")
        if not _is_complete(started):
            started += "\n"
            continue
        for part in _COMMENT.sub("", started).split(" && "):
            if command := re.sub(r" {2,}", " ", _ASSIGNMENTS.sub("", part.strip())):
                found.append(Command(block.page, block.line, command, True))
        started = ""
    assert not started, block
    return found


@functools.cache
def list_commands(page: str) -> list[Command]:
    """List the commands of a page in their order: of blocks, and of code within lines that begins with a program.

    Of blocks without a language, which show texts of errors and alerts, they are the commands that these texts name.
    """
    blocks = {block.line: block for block in list_blocks(page)}
    found: list[Command] = []
    end = 0
    for number, line in enumerate(_read(page), 1):
        if number in blocks:
            block = blocks[number]
            end = number + block.text.count("\n") + 1
            if block.language in SHELL:
                found += split_commands(block)
            elif block.language == "":
                mentions = (mention.partition("; page: ")[0].strip() for mention in _MENTION.findall(block.text))
                found += [Command(page, number, mention, False) for mention in mentions]
        elif number > end:
            spans = (span.strip() for span in _SPAN.findall(line))
            found += [
                Command(page, number, span, False)
                for span in spans
                if PROGRAMS.fullmatch(span.split()[0]) and " " in span
            ]
    return found


def split_words(text: str) -> list[str]:
    """Split a command into words, up to a pipe or a redirection."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|<>&;")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if not set(word) - set("|<>&;"):
            break
        words.append(word)
    return words


def list_misplaced_commands(page: str) -> Iterator[str]:
    """List lines of blocks without a language of a shell that look like commands."""
    for block in list_blocks(page):
        if block.language in ("", "text", "sh", "shell"):
            for line in block.text.splitlines():
                words = _ASSIGNMENTS.sub("", line.strip().removeprefix("$ ")).split()
                known = len(words) > 1 and words[0] != "source" and PROGRAMS.fullmatch(words[0])
                if known or re.match(r"^\w[\w./-]* (\S+ )*--?[a-z]", line.strip()):
                    yield f"{page}:{block.line}: {line}"


def _is_complete(text: str) -> bool:
    """Check whether each quote of a command has its end, and no pipe is open."""
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return not text.rstrip().endswith("|")


def _read(page: str) -> list[str]:
    return (paths.ROOT / Path(page)).read_text().splitlines()
