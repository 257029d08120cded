"""The server's errors: a number, the name that goes with it, and labels."""

from __future__ import annotations

from typing import Any

from dev.servers.mongodb.values.documents import Document

NAMES = {
    1: "InternalError",
    2: "BadValue",
    6: "HostUnreachable",
    7: "HostNotFound",
    8: "UnknownError",
    9: "FailedToParse",
    10: "CannotMutateObject",
    11: "UserNotFound",
    13: "Unauthorized",
    14: "TypeMismatch",
    15: "Overflow",
    16: "InvalidLength",
    17: "ProtocolError",
    18: "AuthenticationFailed",
    20: "IllegalOperation",
    26: "NamespaceNotFound",
    27: "IndexNotFound",
    28: "PathNotViable",
    31: "RoleNotFound",
    40: "ConflictingUpdateOperators",
    43: "CursorNotFound",
    47: "NoMatchingDocument",
    48: "NamespaceExists",
    50: "MaxTimeMSExpired",
    51: "UserAlreadyExists",
    52: "DollarPrefixedFieldName",
    53: "InvalidIdField",
    54: "NotSingleValueField",
    56: "EmptyFieldName",
    57: "DottedFieldName",
    59: "CommandNotFound",
    61: "ShardKeyNotFound",
    63: "OBSOLETE_StaleShardVersion",
    64: "WriteConcernFailed",
    66: "ImmutableField",
    67: "CannotCreateIndex",
    70: "ShardNotFound",
    72: "InvalidOptions",
    73: "InvalidNamespace",
    74: "NodeNotFound",
    76: "NoReplicationEnabled",
    85: "IndexOptionsConflict",
    86: "IndexKeySpecsConflict",
    89: "NetworkTimeout",
    90: "CallbackCanceled",
    91: "ShutdownInProgress",
    93: "InvalidReplicaSetConfig",
    94: "NotYetInitialized",
    96: "OperationFailed",
    100: "UnsatisfiableWriteConcern",
    103: "NewReplicaSetConfigurationIncompatible",
    112: "WriteConflict",
    117: "ConflictingOperationInProgress",
    118: "NamespaceNotSharded",
    121: "DocumentValidationFailure",
    125: "CommandFailed",
    133: "FailedToSatisfyReadPreference",
    134: "ReadConcernMajorityNotAvailableYet",
    136: "CappedPositionLost",
    146: "ExceededMemoryLimit",
    150: "StaleEpoch",
    166: "CommandNotSupportedOnView",
    167: "OptionNotSupportedOnView",
    168: "InvalidPipelineOperator",
    175: "QueryPlanKilled",
    189: "PrimarySteppedDown",
    197: "InvalidIndexSpecificationOption",
    203: "ShardingStateNotInitialized",
    202: "NetworkInterfaceExceededTimeLimit",
    206: "NoSuchSession",
    211: "KeyNotFound",
    222: "CloseChangeStream",
    225: "TransactionTooOld",
    234: "RetryChangeStream",
    237: "CursorKilled",
    239: "SnapshotTooOld",
    240: "MigrationConflict",
    241: "ConversionFailure",
    246: "SnapshotUnavailable",
    251: "NoSuchTransaction",
    256: "TransactionCommitted",
    257: "TransactionTooLarge",
    260: "InvalidResumeToken",
    261: "TooManyLogicalSessions",
    262: "ExceededTimeLimit",
    263: "OperationNotSupportedInTransaction",
    280: "ChangeStreamFatalError",
    283: "WouldChangeOwningShard",
    286: "ChangeStreamHistoryLost",
    292: "QueryExceededMemoryLimitNoDiskUseAllowed",
    317: "ConnectionPoolExpired",
    322: "ExceededMemoryLimit",
    334: "MechanismUnavailable",
    352: "UnsupportedOpQueryCommand",
    358: "InternalTransactionNotSupported",
    406: "DuplicateKeyId",
    8000: "AtlasError",
    9001: "SocketException",
    10003: "CannotGrowDocumentInCappedNamespace",
    10058: "LegacyNotPrimary",
    10107: "NotWritablePrimary",
    10334: "BSONObjectTooLarge",
    11000: "DuplicateKey",
    11600: "InterruptedAtShutdown",
    11601: "Interrupted",
    11602: "InterruptedDueToReplStateChange",
    13388: "StaleConfig",
    13113: "MergeStageNoMatchingDocument",
    13435: "NotPrimaryNoSecondaryOk",
    13436: "NotPrimaryOrSecondary",
    40415: "IDLUnknownField",
    40414: "IDLFailedToParse",
}

RESUMABLE = frozenset({6, 7, 63, 89, 91, 133, 134, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13388, 13435, 13436})
"""The codes that the specification of change streams lets a client resume after."""


class MongoError(Exception):
    """An error that a command answers."""

    def __init__(self, code: int, message: str, labels: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.labels, self.more = code, message, labels, more

    @property
    def name(self) -> str:
        """The name of the code; codes without one are called after their number."""
        return NAMES.get(self.code, f"Location{self.code}")

    def reply(self) -> Document:
        """The reply of a command that failed with this error."""
        labels: Document = {"errorLabels": list(self.labels)} if self.labels else {}
        return {**labels, "ok": 0.0, "errmsg": self.message, "code": self.code, "codeName": self.name, **self.more}


def of_atlas(error: MongoError, context: Any) -> MongoError:
    """An error as the proxies of Atlas's small clusters answer it, by its manual ("Unsupported Commands in Atlas") and by what people report."""
    body = context.body
    if error.code == 18:
        return MongoError(8000, "bad auth : authentication failed")
    if error.code == 13 and "requires authentication" not in error.message:
        target = body[context.name]
        target = target if isinstance(target, str) else ""
        return MongoError(8000, f"user is not allowed to do action [{context.name}] on [{context.db}.{target}]")
    if error.code == 59:
        return MongoError(8000, f"{context.name} is not allowed or the syntax is incorrect, see the Atlas documentation for more information.")  # fmt: skip
    return error


def type_name(value: Any) -> str:
    """The name of a value's type, as the server's messages and ``$type`` have it."""
    from dev.servers.mongodb.values.documents import Code

    if isinstance(value, Code):
        return "javascript" if value.scope is None else "javascriptWithScope"
    return _TYPES.get(type(value).__name__, type(value).__name__)


_TYPES = {
    "float": "double",
    "str": "string",
    "dict": "object",
    "list": "array",
    "Binary": "binData",
    "bytes": "binData",
    "Undefined": "undefined",
    "ObjectId": "objectId",
    "bool": "bool",
    "DatetimeMS": "date",
    "NoneType": "null",
    "Regex": "regex",
    "DbPointer": "dbPointer",
    "Symbol": "symbol",
    "int": "int",
    "Timestamp": "timestamp",
    "Int64": "long",
    "Decimal128": "decimal",
    "MinKey": "minKey",
    "MaxKey": "maxKey",
}
TYPE_NUMBERS = {
    1: "double", 2: "string", 3: "object", 4: "array", 5: "binData", 6: "undefined", 7: "objectId", 8: "bool", 9: "date", 10: "null", 11: "regex",
    12: "dbPointer", 13: "javascript", 14: "symbol", 15: "javascriptWithScope", 16: "int", 17: "timestamp", 18: "long", 19: "decimal",
    -1: "minKey", 255: "minKey", 127: "maxKey",
}  # fmt: skip
