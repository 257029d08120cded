"""Shared parts of the sources of relational databases, which each of them would otherwise write again, word for word.

Nothing here knows a particular database: the source asks its own. Code that only looks alike in two sources stays in each of them. A new
relational source takes the modules that it needs; each module but two stands alone:

* :mod:`.config`: its configuration begins with ``RelationalConfig``, a ``TableConfig`` of core's: server, account, converters, properties of Debezium that are refused;
  :mod:`.token_login_config` adds the login tokens of clouds
* :mod:`.chunk_reader`: a chunk reader begins with ``RelationalChunkReader``, and adds its queries, positions and errors; :mod:`.event_key_decoder` has
  the errors, and keys of events as keys of rows
* :mod:`.snapshot_row_blocks`: makes ``READ`` rows of the results of its queries, for snapshots and chunks; :mod:`.fetch_size`: how many at a time
* :mod:`.row_key`: chooses the key of a table among those of its definition
* :mod:`.schema_signal`: reads the structures of ``schema-changes`` signals; the source adds its names and types
* :mod:`.sql_quoting`: quotes names and texts, and builds CREATE TABLE statements
* :mod:`.sql_token_cursor` and :mod:`.ddl_statements`: the parts of a reader of DDL, and its results, as far as every database has them
* :mod:`.alter_table_change` and :mod:`.captured_structures`: the effects of DDL statements on tables, and the tables that they concern
* :mod:`.date_decimal_kernels`, :mod:`.utf8_kernel` and :mod:`.binary_mode_format`: loops that numba compiles (the calendar, wide decimals, UTF-8), and values as text

This is no base of every source: the memory source, and databases without tables, do without it. How kernels are compiled is therefore in
:mod:`airflow_provider_cdc.sources.jit`, for all.
"""
