"""Differences between the releases of Spark that jobs run on."""
