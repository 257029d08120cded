"""The change log: immutable batches of change events on a filesystem or an object store.

::

    <change log>/<connector>/
        manifests/000000000001.json          a batch exists exactly when its manifest does
        data/000000000001/*.parquet          the events, one or more files per topic and schema version
        applied/<kind>-<location>.json       report of the last apply to a target; the tables themselves know their last batch
        origins/<kind>-<location>.json       where the columns of the target's tables come from

``docs/reference/change-log.md`` describes the files for readers with other tools.
"""
