-- PostgreSQL: the capture account. Replace the password; the options --account and --table replace cdc and shop.orders.
-- Run it in the database that is captured. Explanations: docs/sources/postgresql.md. `airflow cdc check --conn-id …` finds what is missing.

-- === account ===
CREATE ROLE cdc LOGIN REPLICATION PASSWORD '…';
GRANT USAGE ON SCHEMA shop TO cdc;
GRANT SELECT ON shop.orders TO cdc;

-- === account on Amazon RDS or Aurora ===
CREATE ROLE cdc LOGIN PASSWORD '…';
GRANT rds_replication TO cdc;
GRANT USAGE ON SCHEMA shop TO cdc;
GRANT SELECT ON shop.orders TO cdc;

-- === publication ===
-- run by the owner of the tables; the connector has publication.autocreate.mode=disabled then
CREATE PUBLICATION dbz_publication;
ALTER PUBLICATION dbz_publication ADD TABLE shop.orders;

-- === publication of the connector ===
-- instead: the connector adds captured tables by itself (publication.autocreate.mode=filtered, the default), so it has to own them.
-- Owners is a role that owns all captured tables, and inventory the database.
GRANT CREATE ON DATABASE inventory TO cdc;
GRANT owners TO cdc;

-- === signal table ===
-- optional: signals from rows, and watermarks of incremental snapshots. SELECT and DELETE only for the strategy insert_delete.
CREATE TABLE app.cdc_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT);
GRANT USAGE ON SCHEMA app TO cdc;
GRANT SELECT, INSERT, DELETE ON app.cdc_signal TO cdc;
ALTER PUBLICATION dbz_publication ADD TABLE app.cdc_signal;

-- === remove ===
-- first the slot, by its name: one that stays keeps the log of the server, until its disk is full
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'debezium';
DROP PUBLICATION IF EXISTS dbz_publication;
DROP OWNED BY cdc;
DROP ROLE cdc;
