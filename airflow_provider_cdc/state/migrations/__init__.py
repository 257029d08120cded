"""Alembic migrations of the state tables, run by ``airflow db migrate`` through ``state.db_manager``."""
