"""Lineage that tasks report to OpenLineage, by Airflow's own provider for it.

Nothing of it is imported unless that provider is installed.

The chain has three links: a table of the source, its topic in the change log, a target table. The capture task reports the first step, with its
masks; the apply task the second one, with the rules of columns. Only the work of a run is reported, and only when it has ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        DatasetFacet,
        column_lineage_dataset,
        output_statistics_output_dataset,
        schema_dataset,
        symlinks_dataset,
    )

    from airflow_provider_cdc.changelog.reports.apply_report import TableApplied
    from airflow_provider_cdc.core.capture.connector_capture import TableCaptureResult

Name = tuple[str, str]
"""Namespace and name of a dataset."""
_EVENT = {
    "op": "the operation of the last event", "seq": "the sequence number of the last event", "commit_ts": "when the source committed the last event",
    "captured_ts": "when the last event was captured", "transaction_id": "the transaction of the last event",
    "source": "the source block of the last event", "snapshot": "whether the last event is from a snapshot",
    "unavailable": "columns without values in the log", "connector": "the connector", "topic": "the topic",
    "database": "the database of the source table", "table": "the source table",
}  # fmt: skip


def is_installed() -> bool:
    """Check whether the provider that takes the events is installed."""
    try:
        return find_spec("airflow.providers.openlineage") is not None
    except ModuleNotFoundError:  # a package above it is not there
        return False


def dataset_of(url: str) -> Name:
    """Namespace and name of a path or URL (OpenLineage, "Naming").

    >>> dataset_of("s3a://lake/shop/orders"), dataset_of("/lake/shop/orders"), dataset_of("hdfs://nn:8020/lake/orders")
    (('s3://lake', 'shop/orders'), ('file', '/lake/shop/orders'), ('hdfs://nn:8020', '/lake/orders'))
    """
    scheme = urlsplit(url).scheme.lower()
    if scheme in ("", "file", "local"):
        path = url.partition(":")[2] if scheme else url
        return "file", os.path.abspath(f"/{path.lstrip('/')}" if path.startswith("/") else path)
    # names of tables may have characters with a meaning in URLs: ? and #
    authority, _, path = url.partition("://")[2].partition("/")
    schemes = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs"}
    path = path.strip("/")
    return f"{schemes.get(scheme, scheme)}://{authority}", f"/{path}" if scheme in ("hdfs", "viewfs", "dbfs") else path


def build_capture_lineage(
    tables: Mapping[str, TableCaptureResult], changelog: str, connector: str
) -> OperatorLineage[Any, Any]:
    """Tables of the source → their topics in the change log.

    :param tables: topic → result of the run
    :param changelog: folder or URL of the change log
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    inputs: dict[Name, InputDataset] = {}
    outputs = []
    for topic, table in sorted(tables.items()):
        columns = table.schema.columns
        declared = {c.name: c.declared.type_expression or c.declared.type_name or c.type for c in columns}
        comments = {c.name: c.declared.comment for c in columns}
        inputs[table.dataset] = InputDataset(*table.dataset, facets={"schema": _schema(declared, comments)})
        fields = {c.name: [(table.dataset, c.name, *_shortened(table.lengths.get(c.name)))] for c in columns}
        facets: dict[str, DatasetFacet] = {
            "schema": _schema({c.name: c.type for c in columns}, comments),
            "columnLineage": _lineage({name: (sources, "") for name, sources in fields.items()}),
        }
        statistics = {"outputStatistics": _statistics(table.events, table.bytes, table.files)}
        outputs.append(
            OutputDataset(*_topic(changelog, connector, topic), facets=facets, outputFacets=dict(statistics))
        )
    return OperatorLineage(inputs=list(inputs.values()), outputs=outputs)


@dataclass(frozen=True, slots=True)
class AppliedTables:
    """The topics of one connector that a run has applied.

    :param tables: as :func:`airflow_provider_cdc.changelog.reports.apply_report_store.merge_by_table` gives them
    :param origins: as :class:`airflow_provider_cdc.changelog.reports.column_origins.ColumnOrigins` has them
    :param changelog: folder or URL of the change log
    """

    tables: Iterable[TableApplied]
    origins: Mapping[str, Mapping[str, Any]]
    changelog: str
    connector: str


def build_apply_lineage(runs: Iterable[AppliedTables], target: str) -> OperatorLineage[Any, Any]:
    """Topics in the change log → target tables.

    :param target: kind of the tables
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset

    from airflow_provider_cdc.changelog.reports.apply_report_store import name_of

    inputs: dict[Name, InputDataset] = {}
    steps: dict[Name, list[_Step]] = {}
    for run, table in ((applied, table) for applied in runs for table in applied.tables):
        source = _topic(run.changelog, run.connector, table["topic"])
        origins = run.origins.get(name_of(table), {})
        if origins.get("location") != table["location"]:
            origins = {}  # of another place; only the names are sure
        facets: dict[str, DatasetFacet] = {"schema": _schema(origins["source"])} if origins else {}
        read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=sum(table["rows"].values()))
        # several tables of one topic have read the same events
        inputs.setdefault(source, InputDataset(*source, facets=facets, inputFacets={"inputStatistics": read}))
        name = dataset_of(origins["path"]) if origins else _place(table["location"])
        steps.setdefault(name, []).append((source, table, origins))
    outputs = [_written(name, table_steps, target) for name, table_steps in steps.items()]
    return OperatorLineage(inputs=list(inputs.values()), outputs=outputs)


_Written = Literal["rows_written", "bytes_written", "files_written"]
_Step = tuple[Name, "TableApplied", Mapping[str, Any]]
"""A topic, the work on it, and the known origins of its table."""
_Field = tuple[Name, str, str, str, bool]
"""Dataset, column, subtype, description, and whether it is masked."""


def _written(name: Name, steps: Sequence[_Step], target: str) -> OutputDataset:
    """Build a target table, which several topics may share."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import storage_dataset

    facets: dict[str, DatasetFacet] = {"storage": storage_dataset.StorageDatasetFacet(target, "parquet")}
    types: dict[str, str] = {}
    columns: dict[str, tuple[list[_Field], str]] = {}
    whole: list[_Field] = []
    for source, _, origins in steps:
        whole += [(source, column, "FILTER", "", False) for column in origins.get("filter", ())]
        for column, origin in origins.get("columns", {}).items():
            types[column] = origin["type"]
            fields, text = columns.get(column, ([], ""))
            kind, description = _how(origin)
            fields = [*fields, *((source, old, kind, description, False) for old in origin["from"])]
            columns[column] = fields, text or ("" if origin["from"] else description)
    if types:
        facets |= {"schema": _schema(types), "columnLineage": _lineage(columns, whole)}
    if catalog := next((origins["catalog"] for _, _, origins in steps if origins.get("catalog")), None):
        facets["symlinks"] = _symlinks(catalog)
    names: tuple[_Written, ...] = ("rows_written", "bytes_written", "files_written")
    numbers = [[table.get(name) for _, table, _ in steps] for name in names]
    totals = [None if None in values else sum(n for n in values if n is not None) for values in numbers]
    return OutputDataset(*name, facets=facets, outputFacets={"outputStatistics": _statistics(*totals)})


def _topic(changelog: str, connector: str, topic: str) -> Name:
    namespace, path = dataset_of(changelog)
    return namespace, "/".join(filter(None, (path, connector, topic)))


def _place(location: str) -> Name:
    """Build the namespace and name of a table of which only the location is known: a path, or a name in a catalog."""
    if "/" in location:
        return dataset_of(location)
    catalog, _, name = location.partition(".")
    return catalog, name


def _symlinks(catalog: Mapping[str, str]) -> symlinks_dataset.SymlinksDatasetFacet:
    """Build the name of a table in its catalog, beside that of its files."""
    from openlineage.client.facet_v2 import symlinks_dataset

    first, _, name = catalog["name"].partition(".")
    address = catalog.get("uri") or catalog.get("warehouse") or first
    namespace = (
        f"hive://{address.partition('://')[2]}" if catalog.get("type") == "hive" and "://" in address else address
    )
    return symlinks_dataset.SymlinksDatasetFacet([symlinks_dataset.Identifier(namespace, name, "TABLE")])


def _schema(
    types: Mapping[str, str], comments: Mapping[str, str | None] | None = None
) -> schema_dataset.SchemaDatasetFacet:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [
        schema_dataset.SchemaDatasetFacetFields(name, type_, (comments or {}).get(name), ordinal_position=number)
        for number, (name, type_) in enumerate(types.items(), start=1)
    ]
    return schema_dataset.SchemaDatasetFacet(fields=fields)


def _statistics(
    rows: int | None, size: int | None, files: int | None
) -> output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet:
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    return output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=rows, size=size, fileCount=files
    )


def _lineage(
    columns: Mapping[str, tuple[Sequence[_Field], str]], whole: Sequence[_Field] = ()
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    """Build the lineage of columns.

    :param columns: column → its origins, and its description if it has none
    :param whole: columns that decide which rows there are
    """
    from openlineage.client.facet_v2 import column_lineage_dataset as module

    fields = {
        name: module.Fields(inputFields=[_input(field) for field in origins], transformationDescription=text or None)
        for name, (origins, text) in columns.items()
    }
    return module.ColumnLineageDatasetFacet(fields=fields, dataset=[_input(field, "INDIRECT") for field in whole])


def _input(field: _Field, type_: str = "DIRECT") -> column_lineage_dataset.InputField:
    from openlineage.client.facet_v2 import column_lineage_dataset as module

    (namespace, name), column, subtype, text, masked = field
    how = module.Transformation(type_, subtype, text or None, masking=masked)
    return module.InputField(namespace, name, column, [how])


def _shortened(length: int | None) -> tuple[str, str, bool]:
    """Return how the capture changes a column's texts: subtype, description, whether it is masked."""
    if length is None:
        return "IDENTITY", "", False
    return (
        ("TRANSFORMATION", "masked", True) if length == 0 else ("TRANSFORMATION", f"cut to {length} characters", False)
    )


def _how(origin: Mapping[str, Any]) -> tuple[str, str]:
    """Return how a rule builds a column: subtype and description."""
    text = str(origin.get("text", ""))
    descriptions = {
        "identity": "", "cast": f"cast to {text}", "computed": text, "constant": f"the text {text!r}", "event": _EVENT.get(text, text),
        "mode": f"kept up to date by mode {text}", "dropped": "dropped at the source, and kept unchanged",
    }  # fmt: skip
    return ("IDENTITY" if origin["how"] == "identity" else "TRANSFORMATION"), descriptions[origin["how"]]
