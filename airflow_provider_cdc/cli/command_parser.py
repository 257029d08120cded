"""The commands under ``airflow cdc``. Read by every call of ``airflow``: nothing is imported that is not needed for help texts."""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, GroupCommand, lazy_load_command

from airflow_provider_cdc.cli.arguments import (
    CONFIRM,
    CONNECTOR,
    DRY,
    LIMIT,
    OUTPUT,
    SOME_CONNECTOR,
    STATE,
    WAIT,
    build_argument,
    define_command,
    parse_seconds,
)
from airflow_provider_cdc.cli.table_parser import table_commands
from airflow_provider_cdc.core.spi.source_procedures import Procedure
from airflow_provider_cdc.sources import SOURCES, load_procedures

_CHANGELOG = build_argument(
    "--changelog",
    metavar="URL",
    help="folder or object store prefix of the change log, before the connector has run",
)


def build_commands() -> list[GroupCommand]:
    """Build the commands that Airflow adds to its command line."""
    commands = [
        _setup(),
        _check(),
        *_lists(),
        _events(),
        _row(),
        *table_commands(),
        *_steering(),
        _delete(),
        _offset(),
        _gap(),
        *_signals(),
        *_procedures(),
    ]
    help_ = "Change data capture: connectors, their offsets, batches, signals and change events"
    return [GroupCommand(name="cdc", help=help_, subcommands=commands)]


def _setup() -> ActionCommand:
    return define_command(
        "setup",
        "Make the connection to the state tables, in Airflow's own metadata DB; better with --role than with Airflow's own login",
        build_argument("--conn-id", default="cdc_state_default", help="connection to make (default: %(default)s)"),
        build_argument(
            "--url",
            help="SQLAlchemy URL of another database, whose tables 'airflow db migrate' does not make; - reads it from standard input",
        ),
        build_argument(
            "--role",
            metavar="NAME",
            help="have the connection log on as a role of its own, and print the SQL that makes it, with rights on the state tables only",
        ),
        build_argument(
            "--replace", action="store_true", help="replace a connection that is there and says something else"
        ),
        where="setup.setup_connection",
    )


def _check() -> ActionCommand:
    return define_command(
        "check",
        "Check that a database is ready for capture, and how far a connector is",
        build_argument("connector", nargs="?", help="name of a connector that has run"),
        build_argument("--conn-id", help="before the first run: the connection to the database"),
        build_argument("--source", help="kind of source, where the connection's type does not say it"),
        STATE,
        OUTPUT,
        where="check_and_events.check_source",
        description="Exit status: 0 ready, 1 not ready, with the statements that repair it.",
    )


def _lists() -> list[ActionCommand]:
    return [
        define_command(
            "connectors",
            "List connectors with their states and offsets",
            STATE,
            OUTPUT,
            where="list_commands.list_connectors",
        ),
        define_command(
            "metrics",
            "Show what captures and applies have measured: totals over all runs, and latest values",
            SOME_CONNECTOR,
            build_argument(
                "--openmetrics",
                action="store_true",
                help="as OpenMetrics text, for Prometheus' textfile collector and others",
            ),
            STATE,
            OUTPUT,
            where="metrics.show_metrics",
        ),
        define_command(
            "offsets", "Show the offsets in full", SOME_CONNECTOR, STATE, OUTPUT, where="list_commands.list_offsets"
        ),
        define_command(
            "batches",
            "List the batches of a connector",
            CONNECTOR,
            LIMIT,
            STATE,
            OUTPUT,
            where="list_commands.list_batches",
        ),
    ]


def _events() -> ActionCommand:
    return define_command(
        "events",
        "Print the change log of a connector as Debezium JSON, one record per line",
        CONNECTOR,
        build_argument("--follow", "-f", action="store_true", help="go on with new batches until interrupted"),
        build_argument("--topic", action="append", metavar="TOPIC", help="only this topic; may be repeated"),
        build_argument("--from-batch", type=int, help="first batch; by default the first one that is kept"),
        build_argument("--limit", type=int, help="end after this many records"),
        build_argument(
            "--form",
            default="debezium",
            help="form of the events: debezium, or one that the source has of its own (default: %(default)s)",
        ),
        build_argument(
            "--schemas", action="store_true", help="with the schemas of keys and values, as with schemas.enable"
        ),
        _CHANGELOG,
        build_argument(
            "--storage-conn-id",
            help="connection with fsspec options of the change log, where the run's are not known",
        ),
        STATE,
        where="check_and_events.export_events",
        description="Records have topic, key, value and headers; a delete is followed by its tombstone, whose value is null.",
    )


def _row() -> ActionCommand:
    return define_command(
        "row",
        "Show every change of one row from the change log, newest first",
        build_argument("table", help="<database>.<table> or <schema>.<table>, as it is called now"),
        build_argument("key", nargs="+", help="values of its key columns in their order, or one JSON object with all of them"),
        build_argument("--connector", help="that captures it, where several do"),
        build_argument("--as-of", metavar="TIME", help="the row as of a time, for example 2026-03-01T12:00:00+00:00, under the key that it had then"),
        build_argument("--compare", action="store_true", help="read the row at the source too, and say what differs"),
        build_argument("--database-conn-id", action="append", metavar="CONN", help="a connection to a target database, to look at its row there; may be repeated"),
        build_argument(
            "--timeout", type=parse_seconds, default=60.0, metavar="SECONDS",
            help="how long to look at batches that the index of keys does not have yet (default: %(default)s)",
        ),
        build_argument("--json", action="store_true", help="the same as -o json"),
        STATE,
        OUTPUT,
        where="row.show_row_history",
        description="It shows data. Airflow's configuration has to allow it, [cdc] show_rows_of, and each look is among the connector's notifications. "
        "Exit status: 0; 2 if there was no time for all batches.",
    )  # fmt: skip


def _steering() -> list[ActionCommand]:
    reason = build_argument("--reason", default="", help="why; the status and the page show it")
    wait = build_argument("--wait", action="store_true", help="wait until the run that is alive has ended")
    return [
        define_command(
            "status", "Show the status of a connector: state, offset, last error, signals under way", CONNECTOR, STATE,
            OUTPUT, where="lifecycle.show_status", description="Exit status: 0, or 1 when the last run failed.",
        ),
        define_command(
            "pause", "Pause a connector: the run that is alive ends within seconds, new runs are skipped", CONNECTOR, reason, wait,
            STATE, where="lifecycle.pause_connector",
        ),
        define_command("resume", "Resume a connector: the next run goes on where the offset stands", CONNECTOR, reason, STATE, where="lifecycle.resume_connector"),
        define_command(
            "stop", "Stop a connector, until it is resumed", CONNECTOR, reason, wait, STATE,
            where="lifecycle.stop_connector",
        ),
        define_command(
            "restart", "End the run that is alive; the next one reads definition and connection anew", CONNECTOR, reason, STATE,
            where="lifecycle.restart_run",
        ),
    ]  # fmt: skip


def _delete() -> ActionCommand:
    return define_command(
        "delete",
        "Delete the state of a connector: offset, histories, signals, notifications",
        CONNECTOR,
        build_argument("--yes-delete", metavar="NAME", help="carry it out; NAME is the connector's name"),
        build_argument("--with-changelog", action="store_true", help="delete its change log too"),
        STATE,
        where="lifecycle.delete_connector",
        description="Tables that were written from it are not touched. Without --yes-delete nothing is deleted.",
    )


def _offset() -> GroupCommand:
    change = (CONFIRM, DRY, STATE)
    return GroupCommand(
        name="offset",
        help="Show, move, forget and restore the offset of a connector",
        subcommands=[
            define_command("show", "Show the offset as it is stored", CONNECTOR, STATE, where="lifecycle.offset_show"),
            define_command(
                "history", "List the offsets that a connector has had", CONNECTOR, LIMIT, STATE, OUTPUT,
                where="lifecycle.offset_history",
            ),
            define_command(
                "set", "Go on from another position in the log",
                build_argument("--to", metavar="JSON", required=True, help="position, as 'offset show' has it"), CONNECTOR, *change,
                where="lifecycle.offset_set", description=_TELLS,
            ),
            define_command(
                "reset", "Forget the position: the next run reads all tables again", CONNECTOR, *change,
                where="lifecycle.offset_reset", description=_TELLS,
            ),
            define_command(
                "restore", "Go back to an offset that the connector has had",
                build_argument("version", type=int, help="as 'offset history' has it"), CONNECTOR, *change,
                where="lifecycle.offset_restore", description=_TELLS,
            ),
        ],
    )  # fmt: skip


_TELLS = "Prints what would be skipped or repeated. The offset changes only with --confirm and the connector's name."


def _gap() -> ActionCommand:
    return define_command(
        "gap",
        "Ask whether the source's log still holds a connector's position, and repair it if not",
        CONNECTOR,
        build_argument(
            "--repair",
            choices=("snapshot", "incremental", "skip"),
            help="read all tables again first; or beside the stream; or accept the loss",
        ),
        CONFIRM,
        DRY,
        STATE,
        OUTPUT,
        where="lifecycle.check_gap",
        description="Exit status: 0 no gap, or repaired; 1 there is a gap. With --repair, only --confirm carries it out.",
    )


def _procedures() -> list[GroupCommand]:
    """Build the commands that an administrator can run at a source, for each kind that offers some."""
    return [
        GroupCommand(
            name=kind,
            help=f"Have something done at a {kind} database, so that tables can be captured",
            subcommands=[_procedure(procedure) for procedure in found.values()],
        )
        for kind in sorted(SOURCES)
        if (found := load_procedures(kind))
    ]


def _procedure(procedure: Procedure) -> ActionCommand:
    flags = [build_argument(f"--{flag.name}", action="store_true", help=flag.help) for flag in procedure.flags]
    carry_out = lazy_load_command("airflow_provider_cdc.cli.procedures.carry_out")

    def run(args: Any) -> None:
        args.procedure = procedure.name
        args.flags = [flag.name for flag in procedure.flags if getattr(args, flag.name.replace("-", "_"))]
        carry_out(args)

    return ActionCommand(
        name=procedure.name,
        help=procedure.help,
        description="Prints the statements that would be run, and what follows from them. Nothing is done without --confirm and the connector's name.",
        func=run,
        args=(
            CONNECTOR, build_argument("table", help="its name, as signal.data.collection has it: <schema>.<table>"), *flags, CONFIRM, DRY,
            STATE, OUTPUT, ARG_VERBOSE,
        ),
    )  # fmt: skip


def _signals() -> list[ActionCommand]:
    id_ = build_argument("--id", help="id of the signal, for notifications; by default a random one")
    return [
        define_command(
            "signal", "Send a signal to a connector", CONNECTOR,
            build_argument("type", help="execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot, log, …"),
            build_argument("--data", metavar="JSON", help="data of the signal; @FILE reads them from a file"), id_, WAIT, STATE,
            where="signals.send_signal",
        ),
        define_command(
            "snapshot", "Read tables again while changes are captured", CONNECTOR,
            build_argument("table", nargs="+", help="<database>.<table>, or a regular expression"),
            build_argument("--type", choices=("incremental", "blocking"), default="incremental", help="(default: %(default)s)"),
            build_argument(
                "--filter", action="append", metavar="TABLE=SQL",
                help="read only some rows: a condition (incremental), or a SELECT (blocking); may be repeated",
            ),
            build_argument("--surrogate-key", metavar="COLUMN", help="column to cut chunks by, instead of the key"),
            build_argument("--chunk-size", type=int, metavar="N", help="rows that are read at a time; by default as the connector has it"),
            build_argument("--replace", action="store_true", help="empty the tables in the targets first, so that rows that are gone disappear"),
            id_, WAIT, STATE, where="signals.request_snapshot",
        ),
        define_command(
            "signals", "List the signals of a connector with their states", CONNECTOR, LIMIT,
            build_argument("--number", type=int, help="only this one"), STATE, OUTPUT, where="signals.list_signals",
        ),
        define_command(
            "notifications", "Print the notifications of a connector: what has happened to its snapshots and signals", CONNECTOR, LIMIT,
            build_argument("--follow", "-f", action="store_true", help="go on with new ones until interrupted"), STATE, OUTPUT,
            where="signals.list_notifications", description="With -o json, one object per line.",
        ),
    ]  # fmt: skip
