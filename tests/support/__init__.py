"""What several tests need: replaying a change log, workloads, connectors in short."""
