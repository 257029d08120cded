"""Change data capture for Airflow and Spark."""

__version__ = "0.1.0"
