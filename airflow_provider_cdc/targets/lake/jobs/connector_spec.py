"""Specification of one connector for an apply: which change log goes where, and how its tables are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from airflow_provider_cdc.core.config.name_suggestions import describe_unknown_name
from airflow_provider_cdc.core.config.target_table_rules import NO_RULES, TableRules
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.formats import known_profile, known_writes

Text = Annotated[str, Field(min_length=1)]


class ConnectorSpec(BaseModel):
    """A connector, and where its tables are.

    :param changelog: folder or object store prefix
    :param location: where tables are, with ``{database}``, ``{table}``, ``{topic}`` and ``{connector}``
    :param profile: how new tables begin, one of :data:`airflow_provider_cdc.targets.lake.formats.format_descriptor.PROFILES`
    :param writes: how rows of tables with a key are written, one of :data:`airflow_provider_cdc.targets.lake.formats.format_descriptor.WRITES`
    :param tables: rules for tables that are not kept as the source has them, or are elsewhere
    :param threads: tables worked on at the same time
    :param adopt: topics whose tables are taken over although they belong to another owner
    :param check_crc: compare the checksum of each file of the change log too
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    connector: Text
    changelog: Text
    location: Text
    profile: Annotated[str, AfterValidator(known_profile)] = "compatible"
    writes: Annotated[str, AfterValidator(known_writes)] = "auto"
    tables: Annotated[TableRules, BeforeValidator(TableRules.parse)] = NO_RULES
    threads: int = Field(2, ge=1)
    adopt: tuple[str, ...] = ()
    check_crc: bool = False

    @classmethod
    def parse(cls, specification: str) -> list[ConnectorSpec]:
        """Parse the specifications of one or several connectors.

        >>> ConnectorSpec.parse('{"connector": "shop", "changelog": "/log", "location": "/lake/{table}"}')[0].threads
        2

        :param specification: an object in JSON; or a file with one, or with a list of them
        :raises ConfigError: it cannot be used; all mistakes are named at once
        """
        text, where = specification, "--apply"
        if not specification.lstrip().startswith(("{", "[")):
            where = specification
            try:
                text = Path(specification).read_text(encoding="utf-8")
            except (OSError, ValueError) as e:
                raise _refused([f"{specification} cannot be read: {e}"]) from e
        try:
            document = json.loads(text)
        except ValueError as e:
            raise _refused([f"{where} is not JSON: {e}"]) from e
        return [cls.from_mapping(entry) for entry in (document if isinstance(document, list) else [document])]

    @classmethod
    def from_mapping(cls, mapping: Any) -> ConnectorSpec:
        """Build a specification from a mapping.

        :raises ConfigError: it cannot be used
        """
        name = mapping.get("connector") if isinstance(mapping, dict) else None
        of = f"connector {name}" if name else "a connector"
        try:
            return cls.model_validate(mapping)
        except ValidationError as e:
            raise _refused([f"{of}: {_explained(error)}" for error in e.errors()]) from e
        except ConfigError as e:  # of a profile, or of the rules for tables
            raise ConfigError(f"{of}: {e.message}", where=e.where, safe=e.safe, remedy=e.remedy) from e


def refuse_twice(connectors: Iterable[str]) -> None:
    """Reject connectors that are given twice.

    :raises ConfigError: one of several connectors is there twice: it would not be clear which of them an option is for
    """
    names = list(connectors)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _refused([f"connector {name} is given twice: use a separate job for its other target" for name in twice])


def format_names(names: Sequence[str], most: int = 3) -> str:
    """Format some names as a list; of many, the first ones and the number of the others.

    >>> format_names(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _explained(error: Any) -> str:
    path = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return describe_unknown_name(path, list(ConnectorSpec.model_fields))
    return f"{path} is missing" if error["type"] == "missing" else f"{path or 'it'}: {error['msg']}"


def _refused(wrong: Sequence[str]) -> ConfigError:
    return ConfigError(
        "The connector specifications cannot be used:\n" + "\n".join(f"  {text}" for text in wrong),
        safe="Nothing was read or changed.",
        remedy='for example --apply \'{"connector": "shop", "changelog": "s3://lake/changelog", "location": "s3a://lake/{database}/{table}"}\'',
    )
