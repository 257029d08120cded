"""Spark types of the types of the change log, documents as ``VARIANT`` included."""
