"""MySQL and MariaDB: snapshots by the binary result set protocol, changes from the binary log.

From the top down: ``build_source_block`` (what core calls), ``checks`` and ``signal_checks`` (prerequisites), ``open_snapshot`` (reads tables), ``log``
(reads the binary log), ``schema`` (table schemas and DDL), ``read_columns`` (column buffers to Arrow arrays), ``kernels`` (loops that numba
compiles). ``config``, ``connect``, ``last_position`` and ``collect_stream_metrics`` serve all of them. Each imports only what stands below it.

PyMySQL connects, authenticates and runs small queries. Array kernels decode the rows of snapshots and of the log: mysql-replication
builds one Python object per value, is two orders of magnitude slower and loses data in ways that ``docs/sources/mysql.md`` lists. Tests
compare with it.
"""
