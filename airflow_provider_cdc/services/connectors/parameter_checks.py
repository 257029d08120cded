"""Checks of the arguments of operators and sensors, when a DAG is parsed and again when templates are rendered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar

from airflow_provider_cdc.core.errors import ConfigError


def parse_seconds(name: str, value: Any, *, zero: bool = False) -> float:
    """Return a time in seconds.

    >>> parse_seconds("run_for", timedelta(minutes=1))
    60.0

    :param name: of the argument, for the error
    :param zero: whether no time at all is a value
    :raises ConfigError: it is no such time
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ConfigError(f"{name} must be a number of seconds or a timedelta, but is {value!r}.")
    if not (0 < seconds < float("inf") or (zero and seconds == 0)):
        raise ConfigError(f"{name} must be {'at least' if zero else 'more than'} 0 seconds, but is {value!r}.")
    return float(seconds)


def parse_optional_seconds(name: str, value: Any) -> float | None:
    """Return a time in seconds; ``None`` if there is none. Raises like :func:`parse_seconds`."""
    return None if value is None else parse_seconds(name, value)


def parse_flag(name: str, value: Any) -> bool:
    """Return a switch. A template such as ``"{{ … }}"`` would always be true.

    :raises ConfigError: it is neither ``True`` nor ``False``
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, but is {value!r}. It is not templated.")
    return value


def parse_text(name: str, value: Any) -> str:
    """Return a text.

    :raises ConfigError: it is none
    """
    return _text(name, value, rendered=False)


def parse_names(name: str, value: Any) -> list[str]:
    """Return a list of names; one text is a list of one name.

    :raises ConfigError: it is no list of texts
    """
    names: str | list[str] = _names(name, value, rendered=False)
    return [names] if isinstance(names, str) else names


def parse_mapping(name: str, value: Any) -> dict[str, Any]:
    """Return further arguments; empty if there are none.

    :raises ConfigError: it is no mapping
    """
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be a mapping, but is {value!r}.")
    return dict(value or {})


class CheckedParameters:
    """Checks arguments by the kind that the class declares: each in its ``__init__``, and Airflow's templates before the task executes."""

    TEXTS: ClassVar[tuple[str, ...]] = ()
    OPTIONAL_TEXTS: ClassVar[tuple[str, ...]] = ()
    """Texts that may be ``None``."""
    NAME_LISTS: ClassVar[tuple[str, ...]] = ()
    """Names: a list of texts, or one text."""
    MAPPINGS: ClassVar[tuple[str, ...]] = ()
    FLAGS: ClassVar[tuple[str, ...]] = ()

    def check_parameters(self, *, rendered: bool = False) -> None:
        """Check the arguments that are set so far.

        :param rendered: numbers of templates become texts; before that, an argument may be the result of another task
        :raises ConfigError: an argument has another kind
        """
        for name in _declared(type(self), "FLAGS"):
            if hasattr(self, name):
                parse_flag(name, getattr(self, name))
        for kind, accept in (
            ("TEXTS", _text),
            ("OPTIONAL_TEXTS", _optional_text),
            ("NAME_LISTS", _names),
            ("MAPPINGS", _mapping),
        ):
            for name in _declared(type(self), kind):
                if hasattr(self, name) and not (
                    not rendered and callable(getattr(getattr(self, name), "resolve", None))
                ):
                    setattr(self, name, accept(name, getattr(self, name), rendered))

    def pre_execute(self, context: Any) -> None:
        from airflow_provider_cdc.hooks.airflow_compat import AirflowFailException

        super().pre_execute(context)  # type: ignore[misc]
        try:
            self.check_parameters(rendered=True)
        except ConfigError as e:
            raise AirflowFailException(str(e)) from e


def _declared(of: type, kind: str) -> Iterable[str]:
    names = [name for base in reversed(of.__mro__) for name in base.__dict__.get(kind, ())]
    return dict.fromkeys(names)


def _text(name: str, value: Any, rendered: bool) -> str:
    if rendered and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a text, but is {value!r}.")
    return value


def _optional_text(name: str, value: Any, rendered: bool) -> str | None:
    return None if value is None else _text(name, value, rendered)


def _names(name: str, value: Any, rendered: bool) -> Any:
    if isinstance(value, str):
        return value
    if value is None and rendered:
        return []
    if isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise ConfigError(f"{name} must be a list of names, but is {value!r}.")
    return [_text(name, one, rendered) for one in value]


def _mapping(name: str, value: Any, rendered: bool) -> Any:
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be a mapping, but is {value!r}.")
    return {} if value is None and rendered else value
