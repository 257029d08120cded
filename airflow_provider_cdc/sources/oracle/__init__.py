"""Oracle: changes out of LogMiner, read from ``V$LOGMNR_CONTENTS``.

The heads are here: :mod:`.source` (what a capture asks), :mod:`.config` (the documented properties), :mod:`.connect` and :mod:`.errors`,
:mod:`.checks` (is the database ready?), :mod:`.position`, :mod:`.metrics`. Below them, each importing only what stands under it:

* :mod:`.mining` reads the log, window by window;
* :mod:`.transactions` keeps changes until their commit, and makes blocks of them; :mod:`.snapshot` reads rows by queries;
* :mod:`.redo` turns the SQL texts that LogMiner makes of redo records into columns;
* :mod:`.schema` knows the structures of tables and follows DDL;
* :mod:`.kernels` are the array programs.
"""
