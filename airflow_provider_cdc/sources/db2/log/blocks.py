"""From merged changes to the blocks that core takes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.model.log_items import BlockTransactions, LogBlock, RowBlock
from airflow_provider_cdc.sources.db2.log.change_merger import BlockPart, ChangeBlock
from airflow_provider_cdc.sources.db2.log.commit_windows import CommitWindow
from airflow_provider_cdc.sources.db2.position import Db2Position


def log_block(block: ChangeBlock, window: CommitWindow, position: Db2Position) -> LogBlock:
    """Build a block of the log.

    :param position: behind its last complete transaction
    """
    ids, times = block.commits.format_texts(), window.times_of(block.commits)
    rows = [_rows(part, ids, times) for part in block.parts]
    return LogBlock(rows, BlockTransactions(ids, times), position, block.open)


def _rows(part: BlockPart, ids: pa.StringArray, times: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> RowBlock:
    changes = part.changes
    # as dictionaries, the form that core gives to texts
    each = pa.array(np.arange(len(changes), dtype=np.int32))
    return RowBlock(
        table=changes.table,
        op=changes.op,
        before=changes.before,
        after=changes.after,
        order=part.order,
        transaction=part.transaction,
        ts_us=times[part.transaction],
        source={
            "change_lsn": pa.DictionaryArray.from_arrays(each, changes.intent.format_texts()),
            "commit_lsn": pa.DictionaryArray.from_arrays(pa.array(part.transaction), ids),
        },
        unavailable_before=changes.unavailable_before,
        unavailable_after=changes.unavailable_after,
    )
