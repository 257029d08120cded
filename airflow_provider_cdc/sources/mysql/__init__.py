"""MySQL and MariaDB: snapshots over the binary result set protocol, changes from the binary log.

PyMySQL connects, authenticates and runs small queries. Rows, of snapshots and of the log, are decoded by our own array kernels
(``kernels``): mysql-replication, which does it one Python object at a time, is two orders of magnitude slower and loses data
in ways that ``docs/sources/mysql.md`` lists; it serves the tests as a second opinion.
"""
