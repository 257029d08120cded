"""Iceberg tables."""

from airflow_provider_cdc.targets.lake.formats.format_descriptor import TableFormat

FORMAT = TableFormat(
    kind="iceberg",
    table_class="airflow_provider_cdc.targets.lake.formats.iceberg.table:IcebergTarget",
    named=True,
    pinned={
        # who merges rows means these columns
        "spark.sql.iceberg.merge-schema": "false",
    },
    unset=(
        # writes would be put aside, and no reader would see them
        "spark.wap.id",
        "spark.wap.branch",
    ),
    stamp="airflow_provider_cdc.targets.lake.formats.iceberg.latest_version_reader:stamp",
)
