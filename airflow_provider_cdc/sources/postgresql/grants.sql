-- PostgreSQL: the capture account. Replace the password; the options --account and --table replace cdc and shop.orders.
-- Explanations: docs/sources/postgresql.md. `airflow cdc check --conn-id …` finds what is missing.

-- === account ===
CREATE ROLE cdc LOGIN REPLICATION PASSWORD '…';
GRANT USAGE ON SCHEMA shop TO cdc;
GRANT SELECT ON shop.orders TO cdc;

-- === managed servers ===
-- instead of the attribute REPLICATION: one of these, after the account exists without it
GRANT rds_replication TO cdc;                  -- Amazon RDS and Aurora
ALTER ROLE cdc WITH REPLICATION;               -- Cloud SQL, Azure Database, Supabase, Neon: run it as their administrator

-- === publication ===
-- run by the owner of the tables, with publication.autocreate.mode=disabled for the connector; repeat ADD TABLE for each table
CREATE PUBLICATION dbz_publication FOR TABLE shop.orders;

-- === account that keeps its publication ===
-- instead: the connector adds tables by itself (publication.autocreate.mode=filtered). It must own the tables, by a role that owns them.
GRANT CREATE ON DATABASE shop TO cdc;
GRANT owner_of_tables TO cdc;

-- === signal table ===
-- optional: signals from rows, and watermarks of incremental snapshots. DELETE only for the strategy insert_delete.
CREATE TABLE shop.cdc_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT);
GRANT SELECT, INSERT, DELETE ON shop.cdc_signal TO cdc;
ALTER PUBLICATION dbz_publication ADD TABLE shop.cdc_signal;

-- === remove ===
-- a slot that stays keeps the log, until the disk is full
SELECT pg_drop_replication_slot('debezium');
DROP PUBLICATION IF EXISTS dbz_publication;
DROP OWNED BY cdc;
DROP ROLE cdc;
