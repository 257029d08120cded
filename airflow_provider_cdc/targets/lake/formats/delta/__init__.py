"""Delta Lake tables."""

from airflow_provider_cdc.targets.lake.formats.format_descriptor import TableFormat

FORMAT = TableFormat(
    kind="delta",
    table_class="airflow_provider_cdc.targets.lake.formats.delta.table:DeltaTarget",
    required={
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    pinned={
        # who merges rows means these columns
        "spark.databricks.delta.schema.autoMerge.enabled": "false",
        # the table says which connector and topic it belongs to
        "spark.databricks.delta.allowArbitraryProperties.enabled": "true",
        # the files of a batch never change and the last event of a key is unique: no need for a copy of the source
        "spark.databricks.delta.merge.materializeSource": "none",
        # in a JVM whose time zone is not UTC, Delta builds the state of the table again after each commit, to look for faults in its handling of
        # times of before 1883: a Spark job and some MB for each table
        "spark.databricks.delta.allFilesInCrc.verificationMode.forceOnNonUTC.enabled": "false",
    },
    unset=(
        # a table that only grows cannot follow its source; a marker that expires would have everything applied again
        "spark.databricks.delta.properties.defaults.appendOnly",
        "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration",
        # left in a session, these make every write of an older number a silent no-op
        "spark.databricks.delta.write.txnAppId",
        "spark.databricks.delta.write.txnVersion",
    ),
    advised={"spark.databricks.delta.snapshotPartitions": "2"},
    # logs an error whenever it reads a file with deletion vectors and a filter
    silenced=("org.apache.spark.sql.delta.DeltaParquetFileFormat",),
    named=True,
    stamp="airflow_provider_cdc.targets.lake.formats.delta.latest_version_reader:stamp",
)
