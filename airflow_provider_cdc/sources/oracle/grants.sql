-- Oracle: the database and the capture account. Replace the password; the options --account and --table replace c##cdc and inventory.customers.
-- Without containers, and inside a pluggable database: an account without c##, no SET CONTAINER, no CONTAINER=ALL.
-- Explanations: docs/sources/oracle.md. `airflow cdc check --conn-id …` finds what is missing. Never run against an Oracle database.

-- === database ===
ALTER DATABASE ADD SUPPLEMENTAL LOG DATA;
ALTER TABLE inventory.customers ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS;

-- === wide grants ===
CREATE USER c##cdc IDENTIFIED BY secret QUOTA UNLIMITED ON users CONTAINER=ALL;
GRANT CREATE SESSION, SET CONTAINER, LOGMINING, CREATE TABLE, CREATE SEQUENCE TO c##cdc CONTAINER=ALL;
GRANT SELECT_CATALOG_ROLE, EXECUTE_CATALOG_ROLE TO c##cdc CONTAINER=ALL;
GRANT SELECT ANY TABLE, FLASHBACK ANY TABLE, LOCK ANY TABLE, SELECT ANY TRANSACTION TO c##cdc CONTAINER=ALL;
GRANT EXECUTE ON DBMS_LOGMNR TO c##cdc CONTAINER=ALL;
GRANT EXECUTE ON DBMS_LOGMNR_D TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$DATABASE TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$LOG TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$LOG_HISTORY TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$LOGMNR_LOGS TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$LOGMNR_CONTENTS TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$LOGMNR_PARAMETERS TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$LOGFILE TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$ARCHIVED_LOG TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$ARCHIVE_DEST_STATUS TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$TRANSACTION TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$THREAD TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$MYSTAT TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$STATNAME TO c##cdc CONTAINER=ALL;

-- === narrow grants ===
GRANT CREATE SESSION TO c##cdc CONTAINER=ALL;                    -- log in
GRANT SET CONTAINER TO c##cdc CONTAINER=ALL;                     -- enter the pluggable database
GRANT LOGMINING TO c##cdc CONTAINER=ALL;                         -- start LogMiner, call its package, read its rows
GRANT CREATE TABLE TO c##cdc CONTAINER=ALL;                      -- create the flush table; may be revoked once it exists
GRANT SELECT ON V_$DATABASE TO c##cdc CONTAINER=ALL;             -- identity, role and current SCN
GRANT SELECT ON V_$THREAD TO c##cdc CONTAINER=ALL;               -- redo threads
GRANT SELECT ON V_$INSTANCE TO c##cdc CONTAINER=ALL;             -- the instance whose log buffer is flushed
GRANT SELECT ON V_$TRANSACTION TO c##cdc CONTAINER=ALL;          -- open transactions
GRANT SELECT ON V_$LOG TO c##cdc CONTAINER=ALL;                  -- online redo logs
GRANT SELECT ON V_$LOGFILE TO c##cdc CONTAINER=ALL;              -- their files
GRANT SELECT ON V_$LOG_HISTORY TO c##cdc CONTAINER=ALL;          -- log switches
GRANT SELECT ON V_$ARCHIVED_LOG TO c##cdc CONTAINER=ALL;         -- archived logs
GRANT SELECT ON V_$ARCHIVE_DEST_STATUS TO c##cdc CONTAINER=ALL;  -- the destination whose copies are read
GRANT SELECT ON V_$LOGMNR_LOGS TO c##cdc CONTAINER=ALL;          -- logs of the LogMiner session
GRANT SELECT ON V_$LOGMNR_CONTENTS TO c##cdc CONTAINER=ALL;      -- rows of the LogMiner session
GRANT SELECT ON V_$LOGMNR_PARAMETERS TO c##cdc CONTAINER=ALL;    -- range of the LogMiner session
-- for each captured table, in the pluggable database:
GRANT SELECT ON inventory.customers TO c##cdc;                   -- see the table, read and lock it in a snapshot
GRANT FLASHBACK ON inventory.customers TO c##cdc;                -- read it as of one SCN

-- optional:
GRANT SELECT ON DBA_EXTENTS TO c##cdc CONTAINER=ALL;             -- several readers for one table, with the next one
GRANT SELECT ON DBA_OBJECTS TO c##cdc CONTAINER=ALL;
GRANT SELECT ON V_$PARAMETER TO c##cdc CONTAINER=ALL;            -- advice about undo
GRANT SELECT ON V_$PDBS TO c##cdc CONTAINER=ALL;                 -- names of pluggable databases in findings
GRANT SELECT ON V_$MYSTAT TO c##cdc CONTAINER=ALL;               -- memory of the session in the metrics, with the next one
GRANT SELECT ON V_$STATNAME TO c##cdc CONTAINER=ALL;
GRANT SELECT ANY TRANSACTION TO c##cdc CONTAINER=ALL;            -- in Debezium's list; no use of it is known here
GRANT EXECUTE_CATALOG_ROLE TO c##cdc CONTAINER=ALL;              -- required for log.mining.strategy=redo_log_catalog

-- === inside a pluggable database ===
ALTER PLUGGABLE DATABASE ADD SUPPLEMENTAL LOG DATA;
CREATE USER cdc IDENTIFIED BY secret QUOTA UNLIMITED ON users;
EXECUTE DBMS_GOLDENGATE_AUTH.GRANT_ADMIN_PRIVILEGE('CDC');
GRANT CREATE SESSION, LOGMINING, CREATE TABLE, SELECT_CATALOG_ROLE TO cdc;
GRANT SELECT ANY TABLE, FLASHBACK ANY TABLE, LOCK ANY TABLE, SELECT ANY TRANSACTION TO cdc;
GRANT EXECUTE ON DBMS_LOGMNR TO cdc;

-- === signal table ===
-- optional: signals from rows, and watermarks of incremental snapshots. SELECT and DELETE only for the strategy insert_delete.
CREATE TABLE app.cdc_signal (id VARCHAR2(42) PRIMARY KEY, type VARCHAR2(32) NOT NULL, data VARCHAR2(2048));
ALTER TABLE app.cdc_signal ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS;
GRANT SELECT, INSERT, DELETE ON app.cdc_signal TO c##cdc;

-- === remove ===
-- The flush table belongs to the account, and is dropped with it. Drop supplemental logging only if nothing else uses it.
DROP USER c##cdc CASCADE;
ALTER TABLE inventory.customers DROP SUPPLEMENTAL LOG DATA (ALL) COLUMNS;
ALTER DATABASE DROP SUPPLEMENTAL LOG DATA;
