"""Changes of one table, in order, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.model.table_schema import TableSchema, row_struct
from airflow_provider_cdc.sources.db2.log.lsn_arrays import LsnArray, concatenate_lsns

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ChangeArrays:
    """Changes of rows of one table, in the order of (``commit``, ``intent``).

    :param commit: ``IBMSNAP_COMMITSEQ`` of each, the LSN of its transaction's commit
    :param intent: ``IBMSNAP_INTENTSEQ``, the LSN of the change; of an update that came as two rows, that of the second one
    :param op: codes of ``core.model.log_items``; likewise ``before``, ``after`` and the masks, see ``RowBlock`` there
    """

    table: TableSchema
    commit: LsnArray
    intent: LsnArray
    op: npt.NDArray[np.int8]
    before: pa.StructArray | None
    after: pa.StructArray | None
    unavailable_before: Mask | None = None
    unavailable_after: Mask | None = None

    def __len__(self) -> int:
        return len(self.op)

    @property
    def image_bytes(self) -> int:
        """Size of the images in memory."""
        return sum(image.nbytes for image in (self.before, self.after) if image is not None)

    def slice_rows(self, start: int, end: int) -> ChangeArrays:
        """Return the changes from one to before another one; nothing is copied."""
        rows = slice(start, end)
        return ChangeArrays(
            table=self.table,
            commit=self.commit[rows],
            intent=self.intent[rows],
            op=self.op[rows],
            before=None if self.before is None else self.before.slice(start, end - start),
            after=None if self.after is None else self.after.slice(start, end - start),
            unavailable_before=None if self.unavailable_before is None else self.unavailable_before[:, rows],
            unavailable_after=None if self.unavailable_after is None else self.unavailable_after[:, rows],
        )

    def build_order_keys(self, commit_words: int, intent_words: int) -> npt.NDArray[np.uint64]:
        """Return the words that order the changes: ``[row, word]``."""
        return np.hstack([self.commit.pad_words(commit_words), self.intent.pad_words(intent_words)])


def concatenate_changes(parts: Sequence[ChangeArrays]) -> ChangeArrays:
    """Concatenate changes of the same table, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return ChangeArrays(
        table=parts[0].table,
        commit=concatenate_lsns([part.commit for part in parts]),
        intent=concatenate_lsns([part.intent for part in parts]),
        op=np.concatenate([part.op for part in parts]),
        before=_images([part.before for part in parts], parts),
        after=_images([part.after for part in parts], parts),
        unavailable_before=_masks([part.unavailable_before for part in parts], parts),
        unavailable_after=_masks([part.unavailable_after for part in parts], parts),
    )


def _images(images: Sequence[pa.StructArray | None], parts: Sequence[ChangeArrays]) -> pa.StructArray | None:
    if all(image is None for image in images):
        return None
    empty = row_struct(parts[0].table)
    each = [pa.nulls(len(part), empty) if image is None else image for image, part in zip(images, parts, strict=True)]
    return pa.concat_arrays(each)


def _masks(masks: Sequence[Mask | None], parts: Sequence[ChangeArrays]) -> Mask | None:
    if all(mask is None for mask in masks):
        return None
    columns = len(parts[0].table.columns)
    each = [
        np.zeros((columns, len(part)), np.bool_) if mask is None else mask
        for mask, part in zip(masks, parts, strict=True)
    ]
    return np.concatenate(each, axis=1)
