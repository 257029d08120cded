"""Oracle: changes out of LogMiner, read from ``V$LOGMNR_CONTENTS``.

``redo`` turns the SQL texts that LogMiner makes of redo records into columns; ``types`` says which change log type an Oracle
column has; ``config`` knows the documented properties.
"""
