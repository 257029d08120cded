"""The properties of a connector, and their direct consequences: filters, masks, topics, lists.

Imported at DAG parse: no module here may import pyarrow or a driver at its top. May import ``core.model``.
"""
