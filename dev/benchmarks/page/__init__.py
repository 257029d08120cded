"""Benchmarks of the answers that the page waits for."""
