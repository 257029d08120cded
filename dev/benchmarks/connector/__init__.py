"""Benchmarks of whole connectors: their cost, and the delay of their changes."""
