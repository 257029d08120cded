"""Airflow connections: to sources, to the state tables, to target databases."""
