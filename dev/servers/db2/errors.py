"""Errors as Db2 reports them: SQLCODE and SQLSTATE for the engine's errors, and errors of the server itself."""

from __future__ import annotations

SEPARATOR = b"\xff"
"""Between the tokens of a message, on the wire."""

DB2_ERRORS: dict[str, tuple[str, int]] = {
    "02000": ("02000", 100),
    "21000": ("21000", -811),
    "22001": ("22001", -433),
    "22003": ("22003", -413),
    "22007": ("22007", -180),
    "22008": ("22008", -181),
    "22012": ("22012", -801),
    "22018": ("22018", -420),
    "22019": ("22019", -130),
    "23502": ("23502", -407),
    "23503": ("23503", -530),
    "23505": ("23505", -803),
    "23513": ("23513", -545),
    "40001": ("40001", -911),
    "40XL1": ("40001", -911),
    "40XL2": ("40001", -911),
    "42500": ("42501", -551),
    "42502": ("42501", -551),
    "42507": ("42501", -551),
    "42601": ("42601", -104),
    "42802": ("42802", -117),
    "42821": ("42821", -408),
    "42818": ("42818", -401),
    "42815": ("42815", -171),
    "42610": ("42610", -418),
    "42X01": ("42601", -104),
    "42X02": ("42601", -104),
    "42X03": ("42702", -203),
    "42X04": ("42703", -206),
    "42X05": ("42704", -204),
    "42X06": ("42601", -104),
    "42X14": ("42703", -205),
    "42X16": ("42701", -121),
    "42Y03": ("42884", -440),
    "42Y07": ("42704", -204),
    "42Y27": ("42601", -104),
    "42Y55": ("42704", -204),
    "42Y35": ("42803", -119),
    "42Y36": ("42803", -119),
    "42Z93": ("42891", -595),
    "42X33": ("42702", -203),
    "42X34": ("42610", -418),
    "42X35": ("42610", -418),
    "42X51": ("42884", -440),
    "42X50": ("42884", -440),
    "42X61": ("42826", -421),
    "42X63": ("42601", -104),
    "42X65": ("42704", -204),
    "42X78": ("42803", -119),
    "42X86": ("42704", -204),
    "42X94": ("42704", -204),
    "X0X02": ("40001", -911),
    "X0Y25": ("42893", -478),
    "X0Y32": ("42710", -601),
    "X0Y54": ("42893", -478),
    "X0Y58": ("42889", -624),
    "X0Y63": ("42831", -542),
    "X0Y66": ("55006", -950),
    "X0Y68": ("42710", -601),
    "X0Y78": ("42601", -104),
    "X0X05": ("42704", -204),
    "XCL16": ("24501", -501),
    "24000": ("24501", -501),
    "XCL49": ("428GJ", -20356),
}
"""SQLSTATE of Derby → SQLSTATE and SQLCODE of Db2. What is not here keeps Derby's state, and the code that Derby gives it."""

DERBYS_LOCK_TIMEOUT = ("40XL1", "40XL2", "X0X02")
DERBYS_DEADLOCK = "40001"
REASONS = {"40XL1": "68", "40XL2": "68", "X0X02": "68", "40001": "2"}
"""Tokens of SQL0911N: 68 is a timeout, 2 a deadlock."""


class Db2Error(Exception):
    """An error that the server answers a statement with."""

    def __init__(self, code: int, state: str, *tokens: str) -> None:
        super().__init__(f"SQL{abs(code):04d}N {'; '.join(tokens)} SQLSTATE={state}")
        self.code = code
        self.state = state
        self.tokens = tokens


def undefined_object_error(name: str) -> Db2Error:
    """SQL0204N: there is no such object."""
    return Db2Error(-204, "42704", name)


def not_authorized(user: str, operation: str, name: str) -> Db2Error:
    """SQL0551N."""
    return Db2Error(-551, "42501", user, operation, name)


def unsupported_statement_error(statement: str) -> Db2Error:
    """SQL0270N: the statement is one that this server does not know how to follow as Db2 does; nothing was changed."""
    return Db2Error(-270, "42997", f"not in this test server: {statement}")
