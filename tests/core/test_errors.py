"""The tree of errors, their text, and their way through pickle."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_provider_cdc
from airflow_provider_cdc.core import errors
from airflow_provider_cdc.core.docs_addresses import DOCS_VARIABLE
from airflow_provider_cdc.core.error_texts import build_page_address, describe_error
from airflow_provider_cdc.core.errors import CdcError, PositionLost, TerminalError, TransientError


def _read_drawn_tree() -> dict[str, str]:
    """Class → parent, as the drawing in the module's docstring has it."""
    parents: dict[str, str] = {}
    above: dict[int, str] = {}
    drawing = (errors.__doc__ or "").partition("::")[2].partition("\n\nTexts")[0]
    for line in drawing.splitlines():
        if match := re.match(r"    ([│ ├└─]*)([A-Z]\w+)", line):
            depth, name = len(match[1]), match[2]
            above[depth] = name
            if depth:
                parents[name] = above[max(d for d in above if d < depth)]
    return parents


def _list_subclasses(cls: type[CdcError]) -> Iterator[type[CdcError]]:
    for child in cls.__subclasses__():
        yield child
        yield from _list_subclasses(child)


OURS = [cls for cls in _list_subclasses(CdcError) if cls.__module__ == errors.__name__]


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    assert _read_drawn_tree() == {cls.__name__: cls.__base__.__name__ for cls in OURS if cls.__base__}


def test_every_error_is_exported() -> None:
    assert sorted(errors.__all__) == sorted([CdcError.__name__, *(cls.__name__ for cls in OURS)])


def test_every_error_says_whether_a_retry_helps() -> None:
    for cls in OURS:
        if cls not in (TransientError, TerminalError):
            assert issubclass(cls, TransientError) != issubclass(cls, TerminalError), cls


def test_every_error_explains_itself() -> None:
    for cls in OURS:
        assert cls.__doc__, cls


def test_text_has_its_parts_in_the_order_in_which_they_are_needed() -> None:
    error = CdcError("It broke.", where="here", safe="the rest", remedy="mend it")
    assert str(error) == "It broke.\n  Where:  here\n  Safe:   the rest\n  Repair: mend it"


def test_text_leaves_out_parts_that_are_not_known() -> None:
    assert str(CdcError("It broke.")) == "It broke."
    assert str(CdcError("It broke.", remedy="mend it")) == "It broke.\n  Repair: mend it"


def test_every_error_ends_with_the_address_of_its_page() -> None:
    for cls in OURS:
        page = f"\n  Page:   docs/errors/{cls.__name__}.md"
        assert str(cls("It broke.")) == f"It broke.{'' if cls in (TransientError, TerminalError) else page}"


class _Unlisted(errors.StorageFull):
    """An error outside of the tree."""


def test_an_error_without_a_page_has_that_of_its_nearest_parent() -> None:
    assert describe_error(_Unlisted("No room.")) == "StorageFull: No room.\n  Page:   docs/errors/StorageFull.md"


def test_every_error_of_the_package_has_a_page() -> None:
    for module in pkgutil.walk_packages(airflow_provider_cdc.__path__, "airflow_provider_cdc."):
        if module.name.endswith(("storage_errors", "partial_document_updates", "kafka_signals")):
            importlib.import_module(module.name)  # those that define errors besides the tree
    pages = {path.stem for path in (Path(__file__).parents[2] / "docs" / "errors").glob("*.md")}
    ours = [cls for cls in _list_subclasses(CdcError) if cls.__module__.startswith("airflow_provider_cdc.")]
    assert {cls.page_name for cls in ours} - {""} <= pages
    assert {cls.__name__ for cls in ours if not cls.page_name} == {"TransientError", "TerminalError", "_TopicMissing"}


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("", "docs/errors/StorageFull.md"),
        ("https://docs.example.com/cdc/", "https://docs.example.com/cdc/errors/StorageFull.html"),
        ("https://git.example.com/docs/{page}.md", "https://git.example.com/docs/errors/StorageFull.md"),
    ],
)
def test_the_configuration_says_where_pages_are(base: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DOCS_VARIABLE, base)
    assert build_page_address("StorageFull") == address


@pytest.mark.parametrize("cls", [CdcError, *OURS])
@pytest.mark.parametrize("way", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy], ids=["pickle", "copy"])
def test_an_error_keeps_its_parts_on_the_way_to_another_process(cls: type[CdcError], way: object) -> None:
    error = cls("message", where="where", safe="safe", remedy="remedy")
    there = way(error)  # type: ignore[operator]
    assert type(there) is cls
    assert (there.message, there.where, there.safe, there.remedy) == ("message", "where", "safe", "remedy")
    assert str(there) == str(error)


def test_the_example_of_the_docstring_is_what_is_printed() -> None:
    printed = str(PositionLost("The log starts after the saved position.", where="binlog.000003:4", remedy="do this"))
    assert all(line in (errors.__doc__ or "") for line in printed.splitlines())
