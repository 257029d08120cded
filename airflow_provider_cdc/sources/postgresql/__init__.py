"""PostgreSQL: logical replication by ``pgoutput``."""
