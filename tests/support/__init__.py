"""Helpers of several tests: replays of a change log, workloads, connectors in short."""
