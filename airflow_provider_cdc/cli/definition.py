"""The commands under ``airflow cdc``. Read by every call of ``airflow``: nothing is imported that is not needed for help texts."""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, Arg, GroupCommand, lazy_load_command


def _arg(*flags: str, **options: Any) -> Arg:
    return Arg(flags, **options)  # type: ignore[no-untyped-call]


_CONNECTOR = _arg("connector", help="name of the connector")
_SOME_CONNECTOR = _arg("connector", nargs="?", help="name of a connector; without it, all of them")
_STATE = _arg(
    "--state-conn-id", default="cdc_state_default", help="connection to the state tables (default: %(default)s)"
)
_OUTPUT = _arg("-o", "--output", choices=("table", "json"), default="table", help="form of the output (default: table)")
_CHANGELOG = _arg(
    "--changelog",
    metavar="URL",
    help="folder or object store prefix of the change log, before the connector has run",
)


def commands() -> list[GroupCommand]:
    """What Airflow adds to its command line."""
    return [
        GroupCommand(
            name="cdc",
            help="Change data capture: connectors, their offsets, batches and change events",
            subcommands=[_setup(), _check(), *_lists(), _events()],
        )
    ]


def _command(name: str, help_: str, *args: Arg, description: str | None = None) -> ActionCommand:
    func = lazy_load_command(f"airflow_provider_cdc.cli.commands.{name}")
    return ActionCommand(name=name, help=help_, description=description, func=func, args=(*args, ARG_VERBOSE))


def _setup() -> ActionCommand:
    return _command(
        "setup",
        "Make the connection to the state tables, in Airflow's own metadata DB",
        _arg("--conn-id", default="cdc_state_default", help="connection to make (default: %(default)s)"),
        _arg("--url", help="SQLAlchemy URL of another database, whose tables 'airflow db migrate' does not make"),
        _arg("--replace", action="store_true", help="replace a connection that is there and says something else"),
    )


def _check() -> ActionCommand:
    return _command(
        "check",
        "Check that a database is ready for capture, and how a connector stands",
        _arg("connector", nargs="?", help="name of a connector that has run"),
        _arg("--conn-id", help="before the first run: the connection to the database"),
        _arg("--source", help="kind of source, where the connection's type does not say it"),
        _STATE,
        _OUTPUT,
        description="Exit status: 0 ready, 1 not ready, with the statements that repair it.",
    )


def _lists() -> list[ActionCommand]:
    limit = _arg("--limit", type=int, default=20, help="how many, newest first (default: %(default)s)")
    return [
        _command("connectors", "List connectors and how they stand", _STATE, _OUTPUT),
        _command("offsets", "Show the offsets in full", _SOME_CONNECTOR, _STATE, _OUTPUT),
        _command("batches", "List the batches of a connector", _CONNECTOR, limit, _STATE, _OUTPUT),
    ]


def _events() -> ActionCommand:
    return _command(
        "events",
        "Print the change log of a connector as Debezium JSON, one record per line",
        _CONNECTOR,
        _arg("--follow", "-f", action="store_true", help="go on with new batches until interrupted"),
        _arg("--topic", action="append", metavar="TOPIC", help="only this topic; may be repeated"),
        _arg("--from-batch", type=int, default=1, help="first batch (default: %(default)s)"),
        _arg("--limit", type=int, help="end after this many records"),
        _arg(
            "--form",
            default="debezium",
            help="form of the events: debezium, or one that the source has of its own (default: %(default)s)",
        ),
        _arg("--schemas", action="store_true", help="with the schemas of keys and values, as with schemas.enable"),
        _CHANGELOG,
        _arg(
            "--storage-conn-id",
            help="connection with fsspec options of the change log, where the run's are not known",
        ),
        _STATE,
        description="Records have topic, key, value and headers; a delete is followed by its tombstone, whose value is null.",
    )
