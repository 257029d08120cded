"""Brings change batches into relational tables, exactly once: SQL, dialects and markers. It knows neither Airflow nor Spark.

:mod:`airflow_provider_cdc.targets.database.apply.database_apply` does it, by :mod:`.config`. A batch's rows, the DDL that they need and the marker that names the batch are one transaction of the target database.
For loads that outgrow one machine, :mod:`airflow_provider_cdc.targets.database.parallel.staged_parallel_apply` has workers (:mod:`airflow_provider_cdc.targets.database.parallel.staging_workers`) fill staging tables first; it does not know who runs them.
"""
