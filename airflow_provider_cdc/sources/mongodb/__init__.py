"""Captures from MongoDB by its change streams: replica sets and sharded clusters.

``connect`` knows the deployment, ``checks`` what it lacks, ``position`` a place in its change stream. ``log/`` reads change streams, ``snapshot/``
reads collections, whole and in chunks, and ``documents/`` makes arrays of BSON.
"""
