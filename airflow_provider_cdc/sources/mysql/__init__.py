"""MySQL and MariaDB: snapshots over the binary result set protocol, changes from the binary log.

From the top down: ``source`` (what core sees), ``checks`` and ``signal_checks`` (prerequisites), ``snapshot`` (reads tables), ``log``
(reads the binary log), ``schema`` (what tables look like), ``columns`` (bytes to Arrow arrays), ``kernels`` (loops that numba
compiles). ``config``, ``connect``, ``position`` and ``metrics`` serve all of them. Each imports only what stands below it.

PyMySQL connects, authenticates and runs small queries. Our own array kernels decode rows, of snapshots and of the log:
mysql-replication, which builds one Python object per value, is two orders of magnitude slower and loses data in ways that
``docs/sources/mysql.md`` lists; it serves the tests as a second opinion.
"""
