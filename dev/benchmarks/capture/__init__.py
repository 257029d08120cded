"""Benchmarks of the capture of changes and of snapshots."""
