"""Airflow connections to sources and to the state tables, and what operators, pages and commands share about connectors."""
