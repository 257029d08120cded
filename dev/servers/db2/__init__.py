"""A test server that IBM's own Db2 driver connects to. A stand-in: no line of it has ever met a Db2.

Real are the driver (``ibm_db`` with IBM's CLI driver), DRDA on TCP, and the SQL engine with its transactions, locks and isolation levels, which is
Apache Derby. Ours are a shim between the two that edits a few fields (:mod:`dev.servers.db2.wire.shim`), Db2's spelling of SQL
(:mod:`dev.servers.db2.statements.dialect`), the catalogue SYSCAT, and the capture program of SQL Replication, ASN, with its control tables and change tables
(:mod:`dev.servers.db2.capture.agent`). Those are modelled on what is public; passing a test here does not prove that Db2 behaves so.

>>> with Db2() as server:
...     server.sql("CREATE TABLE APP.T (ID INT NOT NULL PRIMARY KEY)")
...     server.add_table("APP", "T")
...     server.sql("INSERT INTO APP.T VALUES (1)")
...     server.catch_up()

It refuses what it does not know with an SQLCODE and SQLSTATE of Db2; it never answers such a statement with nothing.

Where it differs from Db2, as far as is known:

* The log is tables filled by row triggers (:mod:`dev.servers.db2.log.log`). Changes of rows in a transaction that has altered the same table before are
  logged with the columns of before.
* ADDTABLE, REMOVETABLE, ASNCDCSERVICES, COMMENT ON and ``ALTER TABLE … DATA CAPTURE`` take effect at once, in transactions of their own.
* TRUNCATE of a table with DATA CAPTURE CHANGES is refused: what the agent makes of it is not public. So are DROP COLUMN and changes of types there, but
  for longer strings, as Db2's documents say.
* The engine has no DECFLOAT, GRAPHIC, XML, BINARY and TIMESTAMP(p): such columns are strings, bytes and TIMESTAMP there, and SYSCAT shows what was declared.
* Large objects have at most 16 MB, whatever their columns were declared with: the driver crashes where it binds longer ones to this engine.
* Common table expressions, window functions but ROW_NUMBER() OVER (), MERGE from VALUES, array binds and the driver's functions for metadata do not work.
* A reader at isolation CS waits for a writer, as on a Db2 with CUR_COMMIT = DISABLED. Waits for locks are of four seconds at least.
* A lock timeout undoes the statement; Db2 undoes the transaction.
* Privileges are kept, and count only with the option ``authorize``.
"""

from dev.servers.db2.launch import Db2, Db2ServerError

__all__ = ["Db2", "Db2ServerError"]
