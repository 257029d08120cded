"""What reads documents: filters, projections, the stages of pipelines, and JSON Schema."""
