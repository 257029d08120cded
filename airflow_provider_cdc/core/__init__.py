"""What capture is: configuration, the Source seam, events, schemas, positions, snapshots, batches.

Nothing in this package imports Airflow, Spark or a database driver; the import-linter contracts in
``pyproject.toml`` hold that. Names are re-exported by their own modules, so that a light module (``config``,
``errors``) can be imported at DAG parse without loading pyarrow.
"""
