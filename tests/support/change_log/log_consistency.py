"""Conditions that a change log must meet, whatever happened to the runs that wrote it."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import orjson

from airflow_provider_cdc.changelog.files.put_if_absent_check import MARKER
from airflow_provider_cdc.changelog.files.running_job_files import FOLDER as WORK
from airflow_provider_cdc.changelog.files.source_carry_over import FOLDER
from tests.support.connectors import Connector

KINDS = ("snapshot", "streaming", "incremental-snapshot")
"""Works of captures."""


def files(connector: Connector) -> set[str]:
    """Every file below the connector's folder of the change log, hidden ones too."""
    folder = Path(connector.changelog.storage.root, connector.name)
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def list_carried_files(connector: Connector) -> set[str]:
    """The files in which the source carries something over, as the offset names them."""
    offset = connector.store.load_offset(connector.name).offset
    if offset is None or offset.carried is None:
        return set()
    data = connector.changelog.open_carry_over(connector.name).read(offset.carried.name)
    assert data is not None
    names = orjson.loads(zlib.decompress(data))["files"]
    return {f"{FOLDER}/{name}" for name in (offset.carried.name, *names)}


def orphans(connector: Connector) -> set[str]:
    """Files that no manifest names, and that do not say that the store was tried out. A run that was killed may leave behind how far it was: one file for each kind of work,
    which the next long one replaces."""
    named = {MARKER}
    for manifest in connector.changelog.read_manifests(connector.name):
        named |= {f.path for f in manifest.files}
        named.add(f"manifests/{manifest.batch:012d}.json")
    named |= list_carried_files(connector)
    works = {f"{WORK}/{name}.json" for name in (f"{kind}-{hashlib.sha256(b'').hexdigest()[:12]}" for kind in KINDS)}
    return files(connector) - named - works


def consistent(connector: Connector) -> None:
    """State tables and change log say the same, and nothing of a run that died is left."""
    offset = connector.store.load_offset(connector.name).offset
    assert offset is not None
    manifests = list(connector.changelog.read_manifests(connector.name))
    assert (offset.batch, offset.seq) == ((manifests[-1].batch, manifests[-1].last_seq) if manifests else (0, 0))
    listed = connector.store.list_batches(connector.name, limit=10_000)
    assert [b.batch for b in listed] == [m.batch for m in reversed(manifests)]
    recorded = [r for m in manifests for r in m.schema_changes]
    assert list(connector.store.schema_history(connector.name)) == recorded
    assert orphans(connector) == set()
