"""Folds partial updates, which have the changes of a document and not the document after them, into the documents that targets keep.

The events of a key follow each other. One that has the document is what the next ones are applied to; one that has the document before it, is applied to that; any other is
applied to what the event before has made, or else to what the target has. Where there is nothing to apply it to, or it does not fit, the document is not known until an event
has it, or deletes it; of a key of which no event does, :func:`refuse_lost` speaks.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import DocumentSchema
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.spi.partial_update_applier import PartialUpdateApplier

if TYPE_CHECKING:  # executors load this module, and have no need of a change log
    from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches

NOWHERE = "neither the table nor an earlier event contains the document"
_SHOWN = 3


def find_partial_documents(pending: PendingBatches) -> DocumentSchema | None:
    """Return the kind of documents that some batches have partial updates of.

    ``None`` if they have none that can be applied.
    """
    documents = pending.schema.documents
    if documents is None or documents.updates is None or documents.body not in pending.schema.column_names:
        return None
    return documents if any(documents.body in file.sparse_columns for _, file in pending.files) else None


@dataclass(frozen=True, slots=True)
class DocumentEvents:
    """Events of documents, in their order.

    :param keys: of each; values that can be compared
    :param op: letter of each
    :param lacks: which updates do not have the document
    :param after: the documents of those that have it
    :param before: the documents before them, null where that is not known
    :param said: the event columns, by their names
    """

    keys: Sequence[Hashable]
    op: npt.NDArray[np.object_]
    seq: npt.NDArray[np.int64]
    lacks: npt.NDArray[np.bool_]
    after: pa.Array
    before: pa.Array
    said: Mapping[str, pa.Array]


class DocumentsLost(TargetError):
    """Documents are not known after some batches; they may be after later ones."""


@dataclass(frozen=True, slots=True)
class LostDocument:
    """The first event of a key since which its document is not known.

    :param why: without values
    """

    seq: int
    why: str


@dataclass(slots=True)
class DocumentBuilder:
    """The documents of some keys, from event to event.

    :ivar present: key → its document before the next event; ``None``: it has none
    :ivar lost: keys whose documents are not known
    """

    updates: PartialUpdateApplier
    present: dict[Hashable, str | None] = field(default_factory=dict)
    lost: dict[Hashable, LostDocument] = field(default_factory=dict)

    def find_needed_keys(self, changes: DocumentEvents) -> list[Hashable]:
        """Keys whose documents :attr:`present` needs before :meth:`apply_events`."""
        visited, needed = {*self.present, *self.lost}, []
        alone = np.asarray(changes.before.is_null()) & changes.lacks
        for key, needs in zip(changes.keys, alone.tolist(), strict=True):
            if key not in visited:
                visited.add(key)
                if needs:
                    needed.append(key)
        return needed

    def apply_events(
        self, changes: DocumentEvents, keep: Collection[Hashable] = ()
    ) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """Return the document after each event, null after deletes; and events after which it is not known.

        :param keep: keys of which more events may come; others are forgotten, but not that they are :attr:`lost`
        """
        run = _UpdatePass(self, changes)
        documents, unknown = run.build_documents()
        self.present = {key: run.find_document(key, documents) for key in keep if run.has_document(key)}
        return documents, unknown


class _UpdatePass:
    """A pass over events: one call of :meth:`DocumentBuilder.apply_events`."""

    def __init__(self, fold: DocumentBuilder, changes: DocumentEvents) -> None:
        self._fold, self._changes = fold, changes
        self._present, self._lost = fold.present, fold.lost
        self._last: dict[Hashable, int] = {}
        """Key → its last event."""
        self._rows = list[int]()
        """The partial updates."""
        self._roots = dict[int, str]()
        """Partial update → why there is nothing to apply it to."""

    def has_document(self, key: Hashable) -> bool:
        return key in self._last or key in self._present

    def find_document(self, key: Hashable, documents: pa.Array) -> str | None:
        """Return the document of a key after these events."""
        at = self._last.get(key)
        return self._present[key] if at is None else documents[at].as_py()

    def build_documents(self) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        changes = self._changes
        unknown = np.zeros(len(changes.op), np.bool_)
        documents, problems = self._applied()
        for number, row in enumerate(self._rows):
            unknown[row] = number in problems
        self._note_lost(unknown, {self._rows[number]: why for number, why in problems.items()})
        if not self._rows:
            return changes.after, unknown
        places = np.arange(len(changes.op))
        places[self._rows] = len(changes.op) + np.arange(len(self._rows))
        return pa.concat_arrays([changes.after.cast(documents.type), documents]).take(pa.array(places)), unknown

    def _applied(self) -> tuple[pa.Array, dict[int, str]]:
        changes, bases, follows = self._changes, list[str | None](), list[int]()
        number: dict[int, int] = {}
        has_before = np.asarray(changes.before.is_valid())
        for row, key in enumerate(changes.keys):
            if changes.op[row] == "t":
                self._last, self._present, self._lost = {}, {}, {}
                continue
            if changes.lacks[row]:
                at = self._last.get(key)
                number[row] = len(self._rows)
                if not has_before[row] and at in number:
                    bases.append(None)
                    follows.append(number[at])
                else:
                    base, why = self._base(row, key, at) if not has_before[row] else (changes.before[row].as_py(), "")
                    if why:
                        self._roots[len(self._rows)] = why
                    bases.append(base)
                    follows.append(-1)
                self._rows.append(row)
            self._last[key] = row
        if not self._rows:
            return pa.array([], pa.string()), {}
        taken = pa.array(self._rows)
        chain = np.array(follows, np.int64)
        documents, problems = self._fold.updates.apply_updates(
            bases, chain, {name: column.take(taken) for name, column in changes.said.items()}
        )
        for row_number in sorted(problems):
            root = self._roots.get(int(chain[row_number]), "")
            if root:
                self._roots[row_number] = root
            problems[row_number] = self._roots.get(row_number) or problems[row_number]
        return documents, problems

    def _base(self, row: int, key: Hashable, at: int | None) -> tuple[str | None, str]:
        """Return the document that an update is applied to if none is known before it, or why there is nothing."""
        changes = self._changes
        if at is not None:
            base = None if changes.op[at] == "d" else changes.after[at].as_py()
            return base, "" if base is not None else NOWHERE
        if (lost := self._lost.get(key)) is not None:
            return None, lost.why
        base = self._present.get(key)
        return base, "" if base is not None else NOWHERE

    def _note_lost(self, unknown: npt.NDArray[np.bool_], why: Mapping[int, str]) -> None:
        lost = self._fold.lost
        if not lost and not unknown.any():
            return
        for row, key in enumerate(self._changes.keys):
            if self._changes.op[row] == "t":
                lost.clear()  # documents that are gone need not be known
            elif unknown[row]:
                lost.setdefault(key, LostDocument(int(self._changes.seq[row]), why[row]))
            else:
                lost.pop(key, None)


def refuse_lost(
    lost: Mapping[Any, LostDocument], pending: PendingBatches, table: str, *, more: int = 0
) -> DocumentsLost:
    """Build the error for keys whose documents are not known after some batches.

    :param lost: by the text of the key
    :param table: the target
    :param more: keys besides
    """
    shown = sorted(lost.items(), key=lambda entry: entry[1].seq)[:_SHOWN]
    each = "; ".join(f"event {document.seq} of the key {key}: {document.why}" for key, document in shown)
    rest = len(lost) - len(shown) + more
    source = str(pending.schema.id)
    chosen = next((f"{format_exact_pattern(source)}={_filter(pending, str(key))}" for key, _ in shown), None)
    command = format_cdc_command("snapshot", pending.connector, format_exact_pattern(source), filter=chosen)
    return DocumentsLost(
        f"Partial document updates of {source} cannot be applied to the documents in {table}: {each}{f'; and {rest} more keys' if rest else ''}.",
        where=f"{table}, batches {pending.first} to {pending.last}",
        safe="The table was not changed; the change log keeps the batches.",
        remedy=f"snapshot these documents again with `{command}`, then capture and apply; without --filter, the whole collection is read",
    )


def _filter(pending: PendingBatches, key: str) -> str:
    """Format a condition for one key, in the words of a source whose rows are documents."""
    return f'{{"{pending.schema.key[0]}": {key}}}'
