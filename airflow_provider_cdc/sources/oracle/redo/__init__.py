"""Reads ``SQL_REDO``, the SQL statements that LogMiner reconstructs from redo records, into columns.

It imports ``schema``, ``kernels`` and ``config``.

:class:`~.redo_statement_reader.RedoReader` reads many statements of one table at once: ``kernels.split`` finds each column's literal, ``kernels.convert``
makes columns of them, and :mod:`.statement_parser` reads statements of unusual form one by one, or says why they cannot be read.
:mod:`.lob_piece_parser` reads the operations that carry LOBs, XML documents and long strings in pieces; :mod:`.lob_assembler` assembles them.
"""
