"""Resolves the table of each row: by LogMiner's names, or by the object number if the row does not match LogMiner's dictionary."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.redo.name_restorer import columns_of, find_nameless_rows, find_stale_rows
from airflow_provider_cdc.sources.oracle.schema.schema_versions import SchemaVersions

Int64s = npt.NDArray[np.int64]


def table_numbers(rows: pa.Table, mask: npt.NDArray[np.bool_], versions: SchemaVersions) -> npt.NDArray[np.int32]:
    """Return the number of each row's table, -1 if it is not captured.

    :param mask: mask of the rows that belong to a table
    :param versions: numbers the tables
    """
    owners = rows.column("owner").combine_chunks().dictionary_encode()
    names = rows.column("table").combine_chunks().dictionary_encode()
    a = owners.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    b = names.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    unknown = find_nameless_rows(owners.dictionary, a, "OWNER") | find_nameless_rows(names.dictionary, b, "NAME")
    old = mask & (unknown | find_stale_rows(rows))
    named = mask & ~old
    pairs, first, which = np.unique(np.where(named, a << 32 | b, -1), return_index=True, return_inverse=True)
    numbers = np.full(len(pairs), -1, np.int32)
    objects = rows.column("object").combine_chunks().fill_null(0).to_numpy(zero_copy_only=False)
    for i, pair in enumerate(pairs.tolist()):
        if pair >= 0:
            owner, name = owners.dictionary[pair >> 32].as_py(), names.dictionary[pair & 0xFFFFFFFF].as_py()
            numbers[i] = versions.find_table_number(owner, name)
            if objects[first[i]]:
                versions.record_object_name(int(objects[first[i]]), owner, name)
    resolved: npt.NDArray[np.int32] = numbers[which]
    if old.any():
        _by_object(rows, objects, np.flatnonzero(old), resolved, versions)
    return resolved


def _by_object(
    rows: pa.Table, objects: Int64s, at: npt.NDArray[np.intp], resolved: npt.NDArray[np.int32], versions: SchemaVersions
) -> None:
    """Resolve the rows with the indices ``at`` by ``DATA_OBJ#``."""
    some, first, which, counts = np.unique(
        objects[at], return_index=True, return_inverse=True, return_counts=True
    )  # fmt: skip
    numbers = np.empty(len(some), np.int32)
    for i, number in enumerate(some.tolist()):
        row = rows.slice(int(at[first[i]]), 1).select(["owner", "table", "scn", "sql"]).to_pylist()[0]
        numbers[i] = versions.number_of_object(
            number,
            row["owner"] or "UNKNOWN",
            row["table"] or "OBJ# ",
            row["scn"],
            int(counts[i]),
            columns_of(row["sql"] or ""),
        )
    resolved[at] = numbers[which]
