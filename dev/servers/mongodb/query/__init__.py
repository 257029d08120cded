"""Queries of documents: filters, projections, the stages of pipelines, and JSON Schema."""
