"""MySQL and MariaDB: snapshots by the binary result set protocol, changes from the binary log.

From the top down: ``source`` (what core calls), ``checks`` and ``signal_checks`` (prerequisites), ``snapshot`` (reads tables), ``log``
(reads the binary log), ``schema`` (table schemas and DDL), ``columns`` (column buffers to Arrow arrays), ``kernels`` (loops that numba
compiles). ``config``, ``connect``, ``position`` and ``metrics`` serve all of them. Each imports only what stands below it.

PyMySQL connects, authenticates and runs small queries. Array kernels decode the rows of snapshots and of the log: mysql-replication
builds one Python object per value, is two orders of magnitude slower and loses data in ways that ``docs/sources/mysql.md`` lists. Tests
compare with it.
"""
