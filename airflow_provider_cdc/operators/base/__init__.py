"""Parts of operators: Spark jobs, apply targets, metrics, lineage, links."""
