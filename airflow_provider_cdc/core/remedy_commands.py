"""The commands that errors and notes tell people to run, fit for a shell whatever connectors and tables are called.

Each command in a text is made by :func:`format_cdc_command`, so that it names its connector and comes out quoted. In a sentence it stands between backticks; a
remedy that is nothing but a command has none. Sources know how their connector is called by ``ConnectorConfig.connector_name``.
"""

from __future__ import annotations

import shlex

from airflow_provider_cdc.core.name_patterns import format_exact_pattern

__all__ = ["format_cdc_command", "name_cdc_command", "read_whole", "set_command_prefix"]

_prefix = ["airflow", "cdc"]


def set_command_prefix(*words: str) -> None:
    """Set the words that commands begin with in this process, where Airflow does not take commands from providers.

    >>> set_command_prefix("airflow-cdc")  # doctest: +SKIP
    """
    _prefix[:] = words


def format_cdc_command(command: str, *names: object, **options: object) -> str:
    """Build a command of ``airflow cdc``.

    >>> format_cdc_command("snapshot", "shop", "shop.orders", type="blocking", replace=True)
    'airflow cdc snapshot shop shop.orders --type blocking --replace'
    >>> format_cdc_command("rebuild", "shop", "shop.$(x)")
    "airflow cdc rebuild shop 'shop.$(x)'"
    >>> format_cdc_command("rebuild", "shop", "-shop.t", location="-there")
    'airflow cdc rebuild --location=-there -- shop -shop.t'

    :param command: its words, such as ``offset show``
    :param names: the connector, tables …, in the order in which the command takes them
    :param options: ``with_changelog=True`` is ``--with-changelog``; those that are ``None`` or ``False`` are left out
    """
    words = [str(name) for name in names]
    flags = [word for name, value in options.items() for word in _option(name.replace("_", "-"), value)]
    arguments = [*flags, "--", *words] if any(word.startswith("-") for word in words) else [*words, *flags]
    return shlex.join([*_prefix, *command.split(), *arguments])


def name_cdc_command(command: str) -> str:
    """Name a command of ``airflow cdc`` in a sentence, without arguments.

    >>> name_cdc_command("offset set")
    'airflow cdc offset set'
    """
    return " ".join([*_prefix, command])


def _option(name: str, value: object) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    text = str(value)
    return [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]


def read_whole(connector: str, *tables: object) -> str:
    """Return the command that has tables read whole again, so that their rows replace those of the targets.

    >>> read_whole("shop", "shop.orders")
    'airflow cdc snapshot shop shop.orders --type blocking --replace'
    """
    return format_cdc_command("snapshot", connector, *map(format_exact_pattern, tables), type="blocking", replace=True)
