"""Db2: changes from the change tables that the ASN capture agent (SQL Replication) fills; snapshots by queries.

Modules here: :mod:`.source` (what core calls), :mod:`.config` (the documented properties), :mod:`.connect` and :mod:`.error_translation`,
:mod:`.checks` (prerequisites), :mod:`.position`, :mod:`.metrics`. Below them, each importing only what stands under it:

* :mod:`.log` reads change tables, window by window, and merges them; :mod:`.snapshot` reads rows by queries;
* :mod:`.asn` knows the agent's control tables: how far it is, and which tables it captures;
* :mod:`.rows` makes Arrow arrays of fetched rows, the same for tables and change tables;
* :mod:`.table_schema` has the tables' schemas;
* :mod:`.kernels` has the loops that numba compiles.

Nothing here ran on a Db2. The driver is IBM's own; the server of the tests is Apache Derby, whose DRDA is made to speak as Db2 does, with a
capture agent of the tests' own beside it.
"""
