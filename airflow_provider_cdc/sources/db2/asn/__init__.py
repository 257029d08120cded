"""Control tables of the ASN capture agent (SQL Replication, ``asncap``): its progress, and the tables that it captures.

Nothing here reads changes; :mod:`..log` does. The names of tables and columns are those of Db2's documentation, "Tables at the Capture
control server". None of this ran on a Db2.
"""
