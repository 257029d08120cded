"""Contains the capture of changes, for every database. No Airflow, Spark, SQLAlchemy or database driver is imported.

From the top down; each may import those below it (checked by ``lint-imports``):

==============  ===========================================================================
``capture``     a run: plan, snapshot, stream, schema changes, signals
``lifecycle``   what people do between runs: status, pause, move the offset, repair a gap
``snapshot``    reads whole tables; ``incremental``, beside it, reads tables in chunks
``writing``     from row blocks to committed batches
``signals``     what signals ask for
``spi``         what sources, stores, change logs and channels implement
``config``      the properties of a connector
``model``       plain values: schemas, positions, offsets, events, manifests
``errors``      every error that people see
==============  ===========================================================================
"""
