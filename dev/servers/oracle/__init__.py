"""A test server that the real Oracle driver connects to.

This is ours: a TNS and TTC wire, an engine on SQLite and a LogMiner, all modelled on public documentation. Nothing here
has ever run against an Oracle database, and passing a test here does not prove that Oracle behaves so. What it gives is
a peer that the unchanged ``oracledb`` driver (thin mode) logs on to over TCP with a checked password, with transactions
of several sessions, redo that is switched, archived and purged, and LogMiner rows of the shapes that are known publicly.

>>> with Oracle() as server:
...     server.sql("CREATE TABLE t (id NUMBER PRIMARY KEY)", "INSERT INTO t VALUES (1)", "COMMIT")
...     with server.capture() as connection:
...         connection.cursor().execute("SELECT current_scn FROM v$database").fetchone()

It refuses what it does not know with ORA-00900 and the statement; it never answers such a statement with nothing.

Where it is simpler than Oracle: check and foreign key constraints are kept but not enforced; numbers outside of 64 bits
and of more than 15 digits are exact when stored and compared, but expressions compute with them as doubles, and they
sort behind all others; named time zones other than UTC are refused; PL/SQL is a menu of calls; views, triggers, synonyms, object types and partitions do not exist.
"""

from dev.servers.oracle.engine.privileges import CAPTURE_GRANTS
from dev.servers.oracle.launch import Oracle, OracleError

__all__ = ["CAPTURE_GRANTS", "Oracle", "OracleError"]
