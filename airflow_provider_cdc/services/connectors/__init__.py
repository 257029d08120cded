"""Access to connectors: definitions, connections, captured tables, targets, a probe of the source."""
