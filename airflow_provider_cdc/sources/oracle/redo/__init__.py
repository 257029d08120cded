"""SQL_REDO, the SQL texts that LogMiner makes of redo records, to columns.

:class:`~.reader.RedoReader` reads many texts of one table at once: ``kernels.split`` finds each column's literal, ``kernels.convert``
makes columns of them, and :mod:`.plain` reads the texts of unusual shape one by one, or says why they cannot be read.
:mod:`.pieces` reads the texts of the operations that carry LOBs, XML documents and long strings in pieces.
"""
