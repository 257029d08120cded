"""Oracle: changes from the redo logs, read by LogMiner (``V$LOGMNR_CONTENTS``); snapshots by flashback queries.

Modules here: :mod:`.source` (what core calls), :mod:`.config` (the documented properties), :mod:`.connect` and :mod:`.error_translation`,
:mod:`.checks` (prerequisites), :mod:`.position`, :mod:`.metrics`. Below them, each importing only what stands under it:

* :mod:`.mining` reads the redo logs, window by window;
* :mod:`.transactions` buffers changes until their commit, and makes blocks of them; :mod:`.snapshot` reads rows by queries;
* :mod:`.redo` reads ``SQL_REDO`` statements into columns;
* :mod:`.table_schema` has the tables' schemas, and applies DDL to them;
* :mod:`.kernels` has the loops that numba compiles.
"""
