"""Targets: tables that are kept equal to the source."""
