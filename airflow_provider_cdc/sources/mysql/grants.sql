-- MySQL and MariaDB: the capture account. Replace the password; the options --account and --database replace cdc and shop.
-- Explanations: docs/sources/mysql.md. `airflow cdc check --conn-id …` finds what is missing.

-- === account ===
CREATE USER 'cdc'@'%' IDENTIFIED BY '…';
GRANT RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'%';
-- for each database that is captured:
GRANT SELECT, LOCK TABLES ON shop.* TO 'cdc'@'%';

-- === account without RELOAD ===
-- RDS, Aurora and other managed servers may refuse RELOAD. A snapshot then locks the tables one by one, with LOCK TABLES.
CREATE USER 'cdc'@'%' IDENTIFIED BY '…';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'%';
GRANT SELECT, LOCK TABLES ON shop.* TO 'cdc'@'%';

-- === signal table ===
-- optional: signals from rows, and watermarks of incremental snapshots. SELECT and DELETE only for the strategy insert_delete.
CREATE TABLE shop.cdc_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT NULL) ENGINE=InnoDB;
GRANT SELECT, INSERT, DELETE ON shop.cdc_signal TO 'cdc'@'%';

-- === remove ===
DROP USER 'cdc'@'%';
