"""Makes a configuration of properties: checks them before anything else happens, and shows them without secrets.

Subclasses of :class:`Configuration` have the properties as fields, whose aliases are the documented dotted names.
:meth:`Configuration.parse` turns every mistake into one :class:`ConfigError` that names the property, the
value, the valid values and the nearest known name.

    >>> ConnectorConfig.parse({"topic.prefix": "shop", "snapshot.mode": "initail"})
    Traceback (most recent call last):
    airflow_provider_cdc.core.errors.ConfigError: 1 property of the connector cannot be used:
      snapshot.mode: 'initail' is not a valid value; did you mean 'initial'? Valid values are: ...

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import difflib
import enum
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self, get_args

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from airflow_provider_cdc.core.config.secret_redaction import find_credentials, strip_credentials
from airflow_provider_cdc.core.errors import ConfigError

log = logging.getLogger(__name__)

# Four families of properties, which have a part of their names free; each is one field, by the name in the first line.
COLUMN_TEXTS = "column.mask.with.<length>.chars, column.truncate.to.<length>.chars"
COLUMN_TEXT = re.compile(r"column\.(mask\.with|truncate\.to)\.(\d+)\.chars")
COLUMN_HASHES = (
    "column.mask.hash.v2.<hashAlgorithm>.with.salt.<salt>, column.mask.hash.<hashAlgorithm>.with.salt.<salt>"
)
COLUMN_HASH = re.compile(r"column\.mask\.hash\.(?:(?P<v2>v2)\.)?(?P<algorithm>[^.]+)\.with\.salt\.(?P<salt>.+)")
DRIVER_OPTIONS = "driver.*"
_FAMILIES: Final = {COLUMN_TEXTS: COLUMN_TEXT, COLUMN_HASHES: COLUMN_HASH, DRIVER_OPTIONS: re.compile(r"driver\.(.+)")}
CONSUMER = "signal.consumer.*"
CONSUMER_NAME = re.compile(r"signals?\.consumer\.(.+)")
CONSUMER_OF_CONNECTION: Final = tuple(
    f"signal.consumer.{name}"
    for name in (
        "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.oauthbearer.config",
        "sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions", "sasl.oauthbearer.token.endpoint.url", "ssl.ca.location", "ssl.ca.pem",
        "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.key.password",
        "ssl.keystore.location", "ssl.keystore.password", "ssl.endpoint.identification.algorithm",
    )
)  # fmt: skip
"""Of the second family, those that belong to a connection."""
_SECRET = re.compile(r"password|passphrase|secret|jaas|credential|oauthbearer\.config|key\.pem$|keystore\.key$")
"""Properties of Kafka clients that hold secrets."""


@dataclass(frozen=True, slots=True)
class ConnectionForm:
    """The form for an Airflow connection to a source, with the usual fields.

    :param labels: field (``host``, ``port``, ``login``, ``password``, ``schema``, ``extra``) → its name here
    :param hidden: fields without a meaning here
    :param placeholders: field → example
    :param extras: further properties in the form, with their description; kept in ``extra`` by their names
    :param stand_ins: properties that a check needs, although they belong to a connector and not to a connection
    :param places: properties of which each connector needs one, as they select the data that it reads, which no connection does → example
    :param files: those of them that name files, which are the workers'
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    placeholders: Mapping[str, str] = field(default_factory=dict)
    extras: Mapping[str, str] = field(default_factory=dict)
    stand_ins: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()


class PropertyEffect(enum.StrEnum):
    """The effect of a property of a configuration.

    Offsets record these, so that a run notices when they select more than before.
    """

    TABLES = "tables"
    """Which tables are captured."""
    ROWS = "rows"
    """Of which captured tables a snapshot reads the rows."""
    QUERIES = "queries"
    """Which rows of a table a snapshot reads."""
    COLUMNS = "columns"
    """Which columns of captured tables are captured, and how much of their values."""
    CHANGES = "changes"
    """Which changes of captured tables are captured."""
    FORM = "form"
    """In which form values are captured: it may decide the type of a column."""


class Configuration(BaseModel):
    """Properties by their documented names: a field for each, and one for each family of names."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)

    FORM: ClassVar[ConnectionForm] = ConnectionForm()
    """The form for a connection to this source."""
    CONNECTION: ClassVar[Mapping[str, str]] = {}
    """The meaning of the fields of a connection: ``host``, ``port``, ``login``, ``password``, ``schema`` → documented property."""
    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = ()
    """Further properties of the connection, which its ``extra`` may hold, besides those of :attr:`FORM` and :attr:`CONNECTION`."""
    LOGIN_EXTRAS: ClassVar[Mapping[str, str]] = {}
    """Names in ``extra`` that are no properties, with their description: the hook makes properties of a login of them."""
    IGNORED: ClassVar[Mapping[str, str]] = {}
    """Documented properties that have no effect here: accepted with a warning. A trailing ``*`` matches a prefix."""
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {}
    """Documented properties that would silently have no effect: refused. A trailing ``*`` matches a prefix."""
    HARMLESS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Values of properties of :attr:`NOT_SUPPORTED` that change nothing, as the documented default: accepted with a warning."""
    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {}
    """Lists and switches that select the captured rows, without those of the base classes. Each ``….list`` must be among them."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Check that :attr:`LISTS` names every list of the class.

        :raises TypeError: a list is not named in :attr:`LISTS`: a change that widens it would go unnoticed
        """
        aliases = {str(f.alias) for f in cls.model_fields.values()}
        named = cls.list_capture_properties()
        if missing := sorted(a for a in aliases if a.endswith(".list") and a not in named):
            raise TypeError(f"{cls.__name__}.LISTS has no effect for {', '.join(missing)}")
        if unknown := sorted(named.keys() - aliases):
            raise TypeError(f"{cls.__name__}.LISTS names {', '.join(unknown)}, which it does not have")

    @classmethod
    def list_capture_properties(cls) -> dict[str, PropertyEffect]:
        """List the properties that select the captured rows, by their documented names."""
        return cls._table("LISTS")

    def find_widened_lists(self, before: Self) -> list[str]:
        """List the properties that now select changes which ``before`` left out, of any table (:attr:`PropertyEffect.CHANGES`)."""
        fields = {str(f.alias): name for name, f in type(self).model_fields.items()}
        named = [name for name, decides in self.list_capture_properties().items() if decides is PropertyEffect.CHANGES]
        values = ((name, getattr(before, fields[name]), getattr(self, fields[name])) for name in named)
        return sorted(name for name, old, new in values if not isinstance(new, bool) and _wider(name, {*old}, {*new}))

    def leaves_out(self) -> list[str]:
        """List the lists and switches by which changes of captured tables are left out.

        Targets do not follow the source then.
        """
        fields = {str(f.alias): name for name, f in type(self).model_fields.items()}
        named = [
            fields[name]
            for name, decides in self.list_capture_properties().items()
            if decides is PropertyEffect.CHANGES
        ]
        everything = {name: type(self).model_fields[name].get_default(call_default_factory=True) for name in named}
        return self.model_copy(update=everything).find_widened_lists(self)

    @classmethod
    def wrong_names(cls, properties: Mapping[str, Any]) -> dict[str, str]:
        """Return names that no property has, and those that are not supported, each with the reason. Values may still be templates."""
        may_be_harmless = {
            name
            for name, value in properties.items()
            if name in cls._table("HARMLESS") and ("{{" in str(value) or cls.explain_no_effect(name, value) is not None)
        }
        reasons = {name: cls._explain_wrong_name(name) for name in properties.keys() - may_be_harmless}
        return {name: reason for name in properties if (reason := reasons.get(name)) is not None}

    @classmethod
    def _explain_wrong_name(cls, name: str) -> str | None:
        aliases = {str(f.alias) for f in cls.model_fields.values()}
        if (
            name in aliases
            or CONSUMER_NAME.fullmatch(name)
            or _find_family(name) in aliases
            or _match(cls._table("IGNORED"), name) is not None
        ):
            return None
        if (reason := _match(cls._table("NOT_SUPPORTED"), name)) is not None:
            return f"not supported: {reason}. Remove the property; it has no effect."
        near = difflib.get_close_matches(name, aliases, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else "see docs/reference/configuration.md for the valid properties."
        return f"unknown property; {hint}"

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        """Check ``properties`` and build the configuration.

        Values may be of their own type or strings, as in a Debezium properties file.

        :raises ConfigError: with one line for each property that cannot be used
        """
        problems: list[str] = []
        fields = {str(f.alias): name for name, f in cls.model_fields.items()}
        values: dict[str, Any] = {}
        families: dict[str, dict[str, Any]] = {}
        consumer: dict[str, str] = {}
        for key, value in properties.items():
            if match := CONSUMER_NAME.fullmatch(key):
                if isinstance(value, (str, int, float)):
                    consumer[match[1]] = str(value).lower() if isinstance(value, bool) else str(value)
                else:
                    problems.append(f"{key}: a {type(value).__name__} is not valid; use a string or a number")
            elif key in fields:
                values[key] = value
            elif (reason := cls.explain_no_effect(key, value)) is not None:
                log.warning("Property %s is accepted and has no effect: %s.", key, reason)
            elif (family := _find_family(key)) in fields:
                families.setdefault(family, {})[key] = value
            else:
                problems.append(f"{key}: {cls._explain_wrong_name(key)}")
        config: Self | None = None
        values |= families
        if consumer:
            values[CONSUMER] = consumer
        try:
            config = cls.model_validate(values)
        except ValidationError as e:
            problems += [_explain(error, cls, fields) for error in e.errors()]
        if problems or config is None:
            count = f"{len(problems)} propert{'y' if len(problems) == 1 else 'ies'}"
            raise ConfigError(f"{count} of the connector cannot be used:\n" + "\n".join(f"  {p}" for p in problems))
        return config

    @classmethod
    def explain_no_effect(cls, name: str, value: Any) -> str | None:
        """Explain why a property with this value is accepted and has no effect; ``None`` if it is not."""
        if str(value).strip().lower() in (harmless.lower() for harmless in cls._table("HARMLESS").get(name, ())):
            return _match(cls._table("NOT_SUPPORTED"), name)
        return _match(cls._table("IGNORED"), name)

    @classmethod
    def from_connection(
        cls,
        *,
        host: str | None = None,
        port: int | None = None,
        login: str | None = None,
        password: str | None = None,
        schema: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Properties from the fields of a connection; fields that are not set give none.

        Each source says in :attr:`CONNECTION` what its fields mean. Names in ``extra`` are documented property names everywhere, and
        only of properties that belong to a connection: people who may edit a connection must not be able to have files of the workers read, or
        statements run, by it.

        :raises ConfigError: ``extra`` names a property of a connector; the error names those of a connection

            >>> MySqlConfig.from_connection(host="db", login="cdc", extra={"database.ssl.mode": "required"})
            {'database.hostname': 'db', 'database.user': 'cdc', 'database.ssl.mode': 'required'}
        """
        fields = {"host": host, "port": port, "login": login, "password": password, "schema": schema}
        logins = cls.list_login_extras()
        named = [(name, fields[field]) for field, name in cls.CONNECTION.items()]
        named += [
            (name, value) for name, value in (extra or {}).items() if value not in (None, "") and name not in logins
        ]
        valid = cls.connection_properties()
        if wrong := sorted({name for name, _ in named} - set(valid)):
            raise ConfigError(
                f"The extra field of a connection cannot contain {', '.join(wrong)}.",
                safe="The extra field may contain only properties of the connection itself.",
                remedy=f"move it to the properties of the connector definition; the extra field may contain {', '.join([*valid, *logins])}",
            )
        return {name: value for name, value in named if value not in (None, "")}

    @classmethod
    def connection_properties(cls) -> list[str]:
        """Documented names of the properties that may come from a connection."""
        own = (name for base in cls.__mro__ for name in base.__dict__.get("CONNECTION_ONLY", ()))
        return sorted({*cls.CONNECTION.values(), *cls.FORM.extras, *own})

    @classmethod
    def list_login_extras(cls) -> dict[str, str]:
        """List the names in the extra of a connection that the hook makes a login of, with their description."""
        return cls._table("LOGIN_EXTRAS")

    @classmethod
    def list_secret_names(cls) -> list[str]:
        """Documented names of the properties that must never be shown."""
        fields = cls.model_fields.values()
        return sorted(str(f.alias) for f in fields if f.annotation is SecretStr or f.annotation == SecretStr | None)

    @classmethod
    def is_secret(cls, name: str) -> bool:
        """Return whether a property, by its documented name, must never be shown."""
        consumer = CONSUMER_NAME.fullmatch(name)
        return name in cls.list_secret_names() or (
            consumer is not None and _SECRET.search(consumer[1].lower()) is not None
        )

    @classmethod
    def _table(cls, name: str) -> dict[str, Any]:
        """``IGNORED``, ``NOT_SUPPORTED``, ``HARMLESS``, ``LISTS`` or ``LOGIN_EXTRAS`` of the class and of all its bases."""
        merged: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            merged.update(base.__dict__.get(name, {}))
        return merged

    def to_public_properties(self) -> dict[str, Any]:
        """Return the properties that were set, by their documented names, without secrets: fit for state, logs and the UI."""
        shown: dict[str, Any] = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if not isinstance(value, SecretStr):
                field = type(self).model_fields[name]
                name = str(field.alias)
                shown[name] = sorted(value) if isinstance(value, frozenset) else strip_credentials(name, value)
        for family in _FAMILIES:
            shown |= shown.pop(family, {})
        for name, secret in shown.pop(CONSUMER, {}).items():
            if not self.is_secret(full := CONSUMER.replace("*", name)):
                shown[full] = strip_credentials(full, secret.get_secret_value())
        return dict(sorted(shown.items()))


def _wider(name: str, before: set[str], now: set[str]) -> bool:
    if "include" in name:
        return bool(before) and not (now and now <= before)
    return not before <= now


def _find_family(name: str) -> str:
    """Find the field of the family that a name belongs to; empty if it belongs to none."""
    return next((family for family, names in _FAMILIES.items() if names.fullmatch(name)), "")


def _match(table: Mapping[str, str], key: str) -> str | None:
    for pattern, reason in table.items():
        if key == pattern or (pattern.endswith("*") and key.startswith(pattern[:-1])):
            return reason
    return None


def _explain(error: Any, cls: type[Configuration], fields: Mapping[str, str]) -> str:
    """Explain one pydantic error in one line, in the terms of the property."""
    if not error["loc"]:
        return str(error["ctx"]["error"]) if "error" in error.get("ctx", {}) else str(error["msg"])
    key = str(error["loc"][0])
    field = cls.model_fields[fields[key]] if key in fields else None
    if error["type"] == "missing":
        text = f"{key}: required and not set"
        return f"{text}. {field.description}" if field is not None and field.description else text
    value, annotation = error["input"], field.annotation if field is not None else None
    secret = annotation is SecretStr or annotation == SecretStr | None or find_credentials(key, value)
    shown = "********" if secret else repr(value)
    types = [a for a in (annotation, *get_args(annotation)) if isinstance(a, type)]
    choices: type[enum.Enum] | None = next((a for a in types if issubclass(a, enum.Enum)), None)
    if error["type"] == "enum" and choices is not None:
        valid = [str(v.value) for v in choices]
        near = difflib.get_close_matches(str(value), valid, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        return f"{key}: {shown} is not a valid value{hint} Valid values are: {', '.join(valid)}"
    if "error" in error.get("ctx", {}):
        return f"{key}: {error['ctx']['error']}"
    return f"{key}: {shown} cannot be used: {error['msg']}"
