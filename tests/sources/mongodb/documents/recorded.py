"""Change events, replies and updates of the recordings of a real server, as bytes."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.support.sources.mongodb.mongodb_json import write
from tests.support.sources.mongodb.mongodb_recordings import scenarios


def _is_cut_text(step: Any) -> bool:
    """Check whether a long text of the recording was left out."""
    if isinstance(step, dict):
        return "$long" in step or any(map(_is_cut_text, step.values()))
    return isinstance(step, list) and any(map(_is_cut_text, step))


def _shorten_texts(step: Any) -> Any:
    """The same with shorter texts where one is many times the same."""
    if isinstance(step, dict) and "$repeated" in step:
        return step["$repeated"] * min(step["times"], 100)
    if isinstance(step, dict):
        return {name: _shorten_texts(value) for name, value in step.items()}
    return [_shorten_texts(value) for value in step] if isinstance(step, list) else step


@cache
def batches() -> list[dict[str, Any]]:
    """Every step in which a change stream gave events."""
    steps = [step for scenario in scenarios().values() for step in scenario["steps"]]
    return [
        _shorten_texts(step)
        for step in steps
        if (step.get("firstBatch") or step.get("nextBatch")) and not _is_cut_text(step)
    ]


@cache
def events() -> list[dict[str, Any]]:
    """Every change event, but those that a pipeline has made something else of."""
    found = [event for step in batches() for event in step.get("firstBatch") or step["nextBatch"]]
    return [event for event in found if not {"op", "doc"} & event.keys()]


def updates() -> Iterator[tuple[bytes, bytes, bytes, bool]]:
    """Every update with both images: the document before, the description, the document after, and whether its paths are disambiguated."""
    for event in events():
        before, after, description = (event.get(name) for name in ("fullDocumentBeforeChange", "fullDocument", "updateDescription"))  # fmt: skip
        if before and after and description:
            yield write(before), write(description), write(after), "disambiguatedPaths" in description
