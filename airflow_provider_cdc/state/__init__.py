"""The state of connectors: their offsets, leases, signals and notifications, in tables of their own, usually in the Airflow metadata DB.

Nothing here but ``db_manager`` imports Airflow: tasks reach the tables through a SQLAlchemy URL from an Airflow connection,
never through Airflow's ORM session, which tasks may not use.
"""
