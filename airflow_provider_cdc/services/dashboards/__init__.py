"""Content of the pages: overview, charts, schema changes, alerts, metrics."""
