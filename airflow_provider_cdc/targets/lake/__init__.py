"""Lakehouse tables, written by Spark. Knows no Airflow and no source database."""
