"""Errors with the numbers and texts an Oracle client knows."""

TEXTS = {
    1: "unique constraint ({0}) violated",
    54: "resource busy and acquire with NOWAIT specified or timeout expired",
    60: "deadlock detected while waiting for resource",
    310: "archived log contains sequence {0}; sequence {1} required",
    600: "internal error of the test server, see its log: {0}",
    900: "invalid SQL statement: {0}",
    903: "invalid table name",
    904: "{0}: invalid identifier",
    911: "invalid character",
    918: "column ambiguously defined",
    922: "missing or invalid option: {0}",
    932: "inconsistent datatypes: expected {0} got {1}",
    933: "SQL command not properly ended: {0}",
    936: "missing expression",
    942: "table or view does not exist",
    947: "not enough values",
    913: "too many values",
    955: "name is already used by an existing object",
    957: "duplicate column name",
    1008: "not all variables bound",
    1013: "user requested cancel of current operation",
    1017: "invalid username/password; logon denied",
    1031: "insufficient privileges",
    1045: "user {0} lacks CREATE SESSION privilege; logon denied",
    1086: "savepoint '{0}' never established in this session or is invalid",
    1280: "Fatal LogMiner Error.",
    1281: "SCN range specified is invalid",
    1284: "file {0} cannot be opened",
    1289: "cannot add duplicate logfile {0}",
    1290: "cannot remove unlisted logfile {0}",
    1291: "missing log file",
    1292: "no log file has been specified for the current LogMiner session",
    1306: "dbms_logmnr.start_logmnr() must be invoked before selecting from v$logmnr_contents",
    1307: "no LogMiner session is currently active",
    1353: "existing Logminer session",
    1371: "Complete LogMiner dictionary not found",
    1400: "cannot insert NULL into ({0})",
    1407: "cannot update ({0}) to NULL",
    1410: "invalid ROWID",
    1430: "column being added already exists in table",
    1435: "user does not exist",
    1438: "value larger than specified precision allowed for this column",
    1442: "column to be modified to NOT NULL is already NOT NULL",
    1451: "column to be modified to NULL cannot be modified to NULL",
    1466: "unable to read data - table definition has changed",
    1475: "must reparse cursor to change bind variable datatype",
    1476: "divisor is equal to zero",
    1555: "snapshot too old: rollback segment number {0} with name \"_SYSSMU{0}$\" too small",
    1722: "invalid number",
    1756: "quoted string not properly terminated",
    1758: "table must be empty to add mandatory (NOT NULL) column",
    1830: "date format picture ends before converting entire input string",
    1839: "date not valid for month specified",
    1858: "a non-numeric character was found where a numeric was expected",
    1861: "literal does not match format string",
    1867: "the interval is invalid",
    1873: "the leading precision of the interval is too small",
    1882: "timezone region {0} not found",
    1918: "user '{0}' does not exist",
    1920: "user name '{0}' conflicts with another user or role name",
    2260: "table can have only one primary key",
    2289: "sequence does not exist",
    2290: "check constraint ({0}) violated",
    2443: "Cannot drop constraint  - nonexistent constraint",
    3113: "end-of-file on communication channel",
    8180: "no snapshot found based on specified time",
    8181: "specified number is not a valid system change number",
    8177: "can't serialize access for this transaction",
    12514: "TNS:listener does not currently know of service requested in connect descriptor",
    12899: "value too large for column {0} (actual: {1}, maximum: {2})",
    14451: "unsupported feature with temporary table",
    16000: "database or pluggable database open for read-only access",
    22275: "invalid LOB locator specified",
    30006: "resource busy; acquire with WAIT timeout expired",
    30926: "unable to get a stable set of rows in the source tables",
    31541: "Supplemental logging is not enabled in CDB$ROOT.",
    31603: "object \"{0}\" of type {1} not found in schema \"{2}\"",
    32463: "cannot create an object with a name matching private temporary table prefix",
    32795: "cannot insert into a generated always identity column",
    38104: "Columns referenced in the ON Clause cannot be updated: {0}",
    44609: "CONTINUOUS_MINE is desupported for use with DBMS_LOGMNR.START_LOGMNR",
    1323: "Invalid state",
    65040: "operation not allowed from within a pluggable database",
    65011: "Pluggable database {0} does not exist.",
}  # fmt: skip


class OraError(Exception):
    """An error as the client shall see it: ``OraError(942)``, ``OraError(904, '"X"')``."""

    def __init__(self, number: int, *arguments: object, prefix: str = "ORA") -> None:
        self.number = number
        self.text = f"{prefix}-{number:05d}: {TEXTS[number].format(*arguments)}"
        super().__init__(self.text)


def unknown(statement: str, why: str = "") -> OraError:
    """The refusal of a statement that this server does not know: it never answers such a statement with nothing."""
    shown = " ".join(statement.split())
    shown = shown if len(shown) <= 400 else f"{shown[:400]} ..."
    return OraError(900, f"{why}: {shown}" if why else shown)
