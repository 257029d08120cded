"""Reading whole tables: when (the policy), by several readers at once, and how their rows are marked.

May import ``core.writing`` and below, not ``core.incremental``.
"""
