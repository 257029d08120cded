"""What sources of relational databases share: what each of them would otherwise write again, word for word.

Nothing here knows a particular database, or asks one anything. What only looks alike in two sources stays in each of them.

* :mod:`.tokens`: tokens of SQL, and a cursor over them, for readers of DDL
* :mod:`.schema_signal`: structures that people write in ``schema-changes`` signals; a source adds its names and types
* :mod:`.ddl_values`: what statements of DDL are; :mod:`.altered_table` and :mod:`.captured_tables`: what they do to tables
* :mod:`.read_block`: rows of a query as ``READ`` rows; :mod:`.value_texts`: values as text; :mod:`.kernels`: the calendar, wide decimals

This is no base of every source: the memory source, and databases without tables, do without it.
"""
