"""Converters of columns: the property ``converters``, and converters that users write as entry points.

Imported at DAG parse: no module here may import pyarrow at its top. May import ``core.model``.
"""
