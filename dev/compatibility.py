"""Checks ``tests/compatibility``, the account of which documented requirement is met, by which test: ``dev/ledger``.

- Each requirement under ``done`` names one test function that pytest collects. ``--run`` runs these tests: each must pass.
- No requirement stands twice, and each has its text in ``requirements.tsv``: ``--show`` prints it.
- Each property that the documents name (``properties.toml``) is known to the sources: honoured, accepted without effect with a reason,
  or refused with one. The account, ``docs/reference/configuration.md`` and the code say the same of it.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev import paths
from dev.properties import PAGE

FOLDER = paths.ROOT / "tests" / "compatibility"
PROPERTIES = FOLDER / "properties.toml"
REQUIREMENTS = FOLDER / "requirements.tsv"
AROUND = "around"
"""The section of what Kafka Connect and the engine take, which all sources know."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The ledger's entry for a requirement.

    :param section: ``done``, ``different`` or ``not-applicable``
    :param text: a test, or a reason
    """

    id: str
    section: str
    text: str


def entries(folder: Path = FOLDER) -> list[Entry]:
    """All that is said, with ranges of ids taken apart."""
    found = []
    for file in sorted(folder.glob("*.toml")):
        if file.name == PROPERTIES.name:
            continue
        for section, statements in tomllib.loads(file.read_text()).items():
            found += [Entry(id_, section, text) for key, text in statements.items() for id_ in ids(key)]
    return found


def requirement_texts(file: Path = REQUIREMENTS) -> dict[str, str]:
    """Return the text of each requirement, by its id."""
    return dict(line.split("\t", 1) for line in file.read_text().splitlines())


def ids(key: str) -> list[str]:
    """The requirements of a key.

    >>> ids("MY-009..MY-011")
    ['MY-009', 'MY-010', 'MY-011']
    """
    first, _, last = key.partition("..")
    area, _, low = first.rpartition("-")
    high = last.rpartition("-")[2] or low
    return [f"{area}-{n:0{len(low)}d}" for n in range(int(low), int(high) + 1)]


# tests


def wrong_tests(statements: list[Entry], collected: set[str]) -> Iterator[str]:
    """Requirements under ``done`` that do not name one test function.

    :param collected: what pytest collects, without the parts in brackets
    """
    named: dict[str, list[str]] = {}
    for entry in statements:
        if entry.section == "done":
            named.setdefault(entry.text, []).append(entry.id)
    for test, of in sorted(named.items()):
        if "::" not in test:
            yield f"{', '.join(of)}: {test} is a whole file; name the test that fails without the feature"
        elif test not in collected:
            yield f"{', '.join(of)}: there is no test {test}"


def without_text(statements: list[Entry], texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the requirements of the account that have no text, and the texts that are in no account."""
    ids_said = {entry.id for entry in statements}
    yield from (f"{id_} has no text in {REQUIREMENTS.name}" for id_ in sorted(ids_said - {*texts}))
    yield from (f"nothing is said of {id_}: {text}" for id_, text in texts.items() if id_ not in ids_said)


def describe_requirement(id_: str, statements: list[Entry], texts: Mapping[str, str]) -> str:
    """Return the text of a requirement, and what the account says of it.

    >>> describe_requirement("X-1", [Entry("X-1", "done", "tests/a.py::test_b")], {"X-1": "It works."})
    'X-1  It works.\\n     done: tests/a.py::test_b'
    """
    found = next((f"{entry.section}: {entry.text}" for entry in statements if entry.id == id_), "not in the account")
    return f"{id_}  {texts.get(id_, 'unknown')}\n{' ' * len(id_)}  {found}"


def find_repeated(statements: list[Entry]) -> Iterator[str]:
    """Requirements that stand twice."""
    seen: set[str] = set()
    for entry in statements:
        if entry.id in seen:
            yield f"{entry.id} stands twice"
        seen.add(entry.id)


def collect_test_names() -> set[str]:
    """Names of all tests that pytest collects, without the parts in brackets."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "--long", "tests"]
    plain = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # they may print otherwise
    done = subprocess.run(command, cwd=paths.ROOT, env=plain, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    return {line.partition("[")[0] for line in lines if "::" in line}


def run(tests: list[str]) -> list[str]:
    """Run some tests; the names of those of which no case passed, or some case failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [paths.ROOT / "dev" / "test", f"--junitxml={report}", *sorted(tests)], cwd=paths.ROOT, check=False
        )
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    passed: set[str] = set()
    failed: set[str] = set()
    for case in cases:
        words = str(case.get("classname")).split(".")
        module = next(i for i, word in enumerate(words) if word.startswith("test_"))
        function = str(case.get("name")).partition("[")[0]
        name = "::".join(["/".join(words[: module + 1]) + ".py", *words[module + 1 :], function])
        outcomes = {child.tag for child in case}
        if outcomes & {"failure", "error"}:
            failed.add(name)
        elif "skipped" not in outcomes:
            passed.add(name)
    return sorted(test for test in tests if test in failed or test not in passed)


# properties


def wrong_properties(statements: list[Entry]) -> Iterator[str]:
    """Documented properties that the code does not know, or of which code, documentation and account do not say the same."""
    from airflow_provider_cdc.sources import load_source

    section = {entry.id: entry for entry in statements}
    documented: dict[str, Any] = tomllib.loads(PROPERTIES.read_text())
    around = documented.pop(AROUND)["names"]
    page = PAGE.read_text()
    verdicts: dict[str, dict[str, str]] = {}
    for kind, properties in documented.items():
        config = load_source(kind).Config
        for name in [*properties, *around]:
            verdict = verdicts.setdefault(name, {})[kind] = _verdict(config, name)
            if verdict == "unknown":
                yield f"{kind}: {name} is documented, and the configuration does not know it"
                continue
            if verdict != "honoured" and not _on_page(config, name, page):
                yield f"{kind}: {name} is {verdict}, and docs/reference/configuration.md does not say so"
            entry = section.get(properties.get(name, ""))
            if name in properties and entry is None:
                yield f"{kind}: nothing is said of {properties[name]}, {name}"
            elif entry is not None and verdict == "refused" and entry.section == "done":
                yield f"{entry.id}: {name} is refused, and is said to be done by {entry.text}"
            elif entry is not None and verdict == "honoured" and entry.section == "not-applicable":
                yield f"{entry.id}: {name} is honoured, and is said to be not applicable: {entry.text}"
            elif entry is not None and entry.section != "done" and _contradicts_verdict(verdict, entry.text):
                yield f"{entry.id}: {name} is {verdict}, and is said to be otherwise: {entry.text}"
    for name, by_kind in verdicts.items():
        if len(set(by_kind.values())) > 1:
            yield f"{name} is not the same everywhere: {', '.join(f'{kind}: {v}' for kind, v in by_kind.items())}"


def _verdict(config: Any, name: str) -> str:
    from airflow_provider_cdc.core.errors import ConfigError

    example = re.sub(r"<[^>]*>", "5", name).replace("*", "x")
    try:
        config.parse({example: "1"})
    except ConfigError as e:
        if f"{example}: unknown property" in str(e):
            return "unknown"
        if f"{example}: not supported" in str(e):
            return "refused"
    return "accepted" if _reason(config, "IGNORED", example) else "honoured"


def _reason(config: Any, table: str, name: str) -> str | None:
    """The entry of a table that a name falls under."""
    for pattern in config._table(table):
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
            return str(pattern)
    return None


def _on_page(config: Any, name: str, page: str) -> bool:
    example = re.sub(r"<[^>]*>", "5", name).replace("*", "x")
    found = _reason(config, "IGNORED", example) or _reason(config, "NOT_SUPPORTED", example)
    return found is not None and f"| `{found}` |" in page


_CLAIM = re.compile(
    r"^(refused)\b|^(accepted) with a warning|the property is (refused|accepted)\b|; (refused|accepted) with a warning$"
)


def _contradicts_verdict(verdict: str, text: str) -> bool:
    """Check whether a reason says of a property that it is refused, or accepted without effect, where it is not.

    >>> _contradicts_verdict("refused", "there is no JDBC driver here; the property is accepted with a warning")
    True
    """
    claim = _CLAIM.search(text)
    return claim is not None and verdict not in claim.groups()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="dev/ledger", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", nargs="*", metavar="ID", help="run the tests of these requirements, or of all")
    parser.add_argument("--show", nargs="+", metavar="ID", help="print these requirements, and how each is met")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # each property that has no effect would be logged
    statements, texts = entries(), requirement_texts()
    if given.show:
        print("\n".join(describe_requirement(id_, statements, texts) for id_ in given.show))
        return 0
    wrong = [
        *find_repeated(statements),
        *without_text(statements, texts),
        *wrong_tests(statements, collect_test_names()),
        *wrong_properties(statements),
    ]
    if given.run is not None and not wrong:
        expected = [e for e in statements if e.section == "done" and (not given.run or e.id in given.run)]
        print(f"{len(expected)} requirements are shown by {len({e.text for e in expected})} tests.", flush=True)
        wrong = [f"{test} did not pass" for test in run(sorted({e.text for e in expected}))]
    print("\n".join(wrong) or f"{len(statements)} requirements: every test named is there, no contradiction.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
