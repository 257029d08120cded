"""Rebuild of tables from the change log."""
