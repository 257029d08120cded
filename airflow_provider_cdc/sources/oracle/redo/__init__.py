"""SQL_REDO, the SQL texts that LogMiner makes of redo records, to columns.

It imports ``schema``, ``kernels`` and the heads of the source.

:class:`~.reader.RedoReader` reads many texts of one table at once: ``kernels.split`` finds each column's literal, ``kernels.convert``
makes columns of them, and :mod:`.statement_parser` reads the texts of unusual shape one by one, or says why they cannot be read.
:mod:`.pieces` reads the texts of the operations that carry LOBs, XML documents and long strings in pieces.
"""
