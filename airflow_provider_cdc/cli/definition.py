"""The commands under ``airflow cdc``. Read by every call of ``airflow``: nothing is imported that is not needed for help texts."""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, Arg, GroupCommand, lazy_load_command

from airflow_provider_cdc.core.spi.procedures import Procedure
from airflow_provider_cdc.sources import SOURCES, procedures


def _arg(*flags: str, **options: Any) -> Arg:
    return Arg(flags, **options)  # type: ignore[no-untyped-call]


def seconds(text: str) -> float:
    """Of an argument.

    :raises ValueError: they are none
    """
    if not 0 <= (value := float(text)) < 1e9:
        raise ValueError
    return value


_CONNECTOR = _arg("connector", help="name of the connector")
_SOME_CONNECTOR = _arg("connector", nargs="?", help="name of a connector; without it, all of them")
_STATE = _arg(
    "--state-conn-id", default="cdc_state_default", help="connection to the state tables (default: %(default)s)"
)
_OUTPUT = _arg("-o", "--output", choices=("table", "json"), default="table", help="form of the output (default: table)")
_LIMIT = _arg("--limit", type=int, default=20, help="how many, newest first (default: %(default)s)")
_WAIT = _arg("--wait", action="store_true", help="wait until it is over; exit status 0 done, 1 not done")
_DRY = _arg(
    "--dry-run",
    action="store_true",
    help="change nothing, and print what would be done; without --confirm this is the default",
)
_CONFIRM = _arg("--confirm", metavar="NAME", help="carry it out; NAME is the connector's name")
_SPARK = (
    _arg("--spark-conn-id", default="spark_default", help="connection to Spark (default: %(default)s)"),
    _arg("--jars", help="jars of the kind of table, where Spark cannot fetch them by itself; with commas between them"),
    _arg(
        "--packages", metavar="COORDINATES",
        help="Maven coordinates of what Spark needs, that of the kind of table among them, as for the apply; with commas between them",
    ),
    _arg("--conf", action="append", metavar="NAME=VALUE", help="a setting of Spark, such as those of a catalog; may be repeated"),
)  # fmt: skip
_TARGET = _arg("--target", help="only this kind of tables: delta, iceberg or database")
_DATABASE = _arg(
    "--database", metavar="CONN_ID", help="connection to a target database, where its last apply has not recorded it"
)
_CHANGELOG = _arg(
    "--changelog",
    metavar="URL",
    help="folder or object store prefix of the change log, before the connector has run",
)


def commands() -> list[GroupCommand]:
    """What Airflow adds to its command line."""
    commands = [
        _setup(),
        _check(),
        *_lists(),
        _events(),
        _row(),
        _maintain(),
        *_targets(),
        _verify(),
        _rebuild(),
        *_steering(),
        _delete(),
        _offset(),
        _gap(),
        *_signals(),
        *_procedures(),
    ]
    help_ = "Change data capture: connectors, their offsets, batches, signals and change events"
    return [GroupCommand(name="cdc", help=help_, subcommands=commands)]


def _command(
    name: str, help_: str, *args: Arg, description: str | None = None, where: str | None = None
) -> ActionCommand:
    """:param where: module and function, where they are not ``commands`` and the name"""
    func = lazy_load_command(f"airflow_provider_cdc.cli.{where or f'commands.{name}'}")
    return ActionCommand(name=name, help=help_, description=description, func=func, args=(*args, ARG_VERBOSE))


def _setup() -> ActionCommand:
    return _command(
        "setup",
        "Make the connection to the state tables, in Airflow's own metadata DB; better with --role than with Airflow's own login",
        _arg("--conn-id", default="cdc_state_default", help="connection to make (default: %(default)s)"),
        _arg(
            "--url",
            help="SQLAlchemy URL of another database, whose tables 'airflow db migrate' does not make; - reads it from standard input",
        ),
        _arg(
            "--role",
            metavar="NAME",
            help="have the connection log on as a role of its own, and print the SQL that makes it, with rights on the state tables only",
        ),
        _arg("--replace", action="store_true", help="replace a connection that is there and says something else"),
        where="setup.setup",
    )


def _check() -> ActionCommand:
    return _command(
        "check",
        "Check that a database is ready for capture, and how far a connector is",
        _arg("connector", nargs="?", help="name of a connector that has run"),
        _arg("--conn-id", help="before the first run: the connection to the database"),
        _arg("--source", help="kind of source, where the connection's type does not say it"),
        _STATE,
        _OUTPUT,
        description="Exit status: 0 ready, 1 not ready, with the statements that repair it.",
    )


def _lists() -> list[ActionCommand]:
    return [
        _command(
            "connectors", "List connectors with their states and offsets", _STATE, _OUTPUT, where="lists.connectors"
        ),
        _command(
            "metrics",
            "Show what captures and applies have measured: totals over all runs, and latest values",
            _SOME_CONNECTOR,
            _arg(
                "--openmetrics",
                action="store_true",
                help="as OpenMetrics text, for Prometheus' textfile collector and others",
            ),
            _STATE,
            _OUTPUT,
            where="metrics.metrics",
        ),
        _command("offsets", "Show the offsets in full", _SOME_CONNECTOR, _STATE, _OUTPUT, where="lists.offsets"),
        _command(
            "batches", "List the batches of a connector", _CONNECTOR, _LIMIT, _STATE, _OUTPUT, where="lists.batches"
        ),
    ]


def _events() -> ActionCommand:
    return _command(
        "events",
        "Print the change log of a connector as Debezium JSON, one record per line",
        _CONNECTOR,
        _arg("--follow", "-f", action="store_true", help="go on with new batches until interrupted"),
        _arg("--topic", action="append", metavar="TOPIC", help="only this topic; may be repeated"),
        _arg("--from-batch", type=int, help="first batch; by default the first one that is kept"),
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


def _row() -> ActionCommand:
    return _command(
        "row",
        "Show every change of one row from the change log, newest first",
        _arg("table", help="<database>.<table> or <schema>.<table>, as it is called now"),
        _arg("key", nargs="+", help="values of its key columns in their order, or one JSON object with all of them"),
        _arg("--connector", help="that captures it, where several do"),
        _arg("--as-of", metavar="TIME", help="the row as of a time, for example 2026-03-01T12:00:00+00:00, under the key that it had then"),
        _arg("--compare", action="store_true", help="read the row at the source too, and say what differs"),
        _arg("--database-conn-id", action="append", metavar="CONN", help="a connection to a target database, to look at its row there; may be repeated"),
        _arg(
            "--timeout", type=seconds, default=60.0, metavar="SECONDS",
            help="how long to look at batches that the index of keys does not have yet (default: %(default)s)",
        ),
        _arg("--json", action="store_true", help="the same as -o json"),
        _STATE,
        _OUTPUT,
        where="row.row",
        description="It shows data. Airflow's configuration has to allow it, [cdc] show_rows_of, and each look is among the connector's notifications. "
        "Exit status: 0; 2 if there was no time for all batches.",
    )  # fmt: skip


def _maintain() -> ActionCommand:
    return _command(
        "maintain",
        "Maintain a connector: remove batches and old rows of the state tables that nobody needs any more; small files, deletes, old snapshots and files of its tables",
        _CONNECTOR,
        _arg(
            "--only", choices=("retention", "tables"),
            help="only change log and state tables, for which Spark is not needed; or only the tables",
        ),
        _arg("--dry-run", action="store_true", help="change nothing, and print what would be removed from the change log; nothing else is looked at"),
        _arg("--location", help="only this target, as its apply has it; without it, all that were applied to"),
        _TARGET,
        _arg(
            "--keep-hours", type=float, default=168.0, metavar="HOURS",
            help="how long files and snapshots stay after they were replaced (default: a week; at least 1)",
        ),
        *_SPARK,
        _OUTPUT,
        _STATE,
        where="maintain.maintain",
        description="Exit status: 0 done, or nothing to do; 1 the change log or some tables could not be maintained. Rows and last batches stay as they are. How long batches "
        "are kept say changelog.retention.ms and changelog.retention.bytes of the connector.",
    )  # fmt: skip


def _targets() -> list[ActionCommand]:
    return [
        _command(
            "targets", "List the targets of a connector, and since when each of them holds batches of the change log back", _CONNECTOR, _STATE, _OUTPUT,
            where="maintain.targets",
        ),
        _command(
            "forget-target", "Have a target that there is no more hold nothing back", _CONNECTOR,
            _arg("--target", required=True, metavar="KIND", help="kind of its tables: delta, iceberg or database"),
            _arg("--location", required=True, help="where they are, as its apply had it"),
            _CONFIRM, _DRY, _STATE, where="maintain.forget_target",
            description="Tells what the target has. Only with --confirm and the connector's name it is forgotten; its tables are not touched.",
        ),
    ]  # fmt: skip


def _verify() -> ActionCommand:
    return _command(
        "verify",
        "Compare the tables of a target with the source, value by value, while capture and apply go on",
        _CONNECTOR,
        _arg("--tables", action="append", metavar="PATTERN", help="only tables like this, as in table.include.list; may be repeated"),
        _arg("--location", help="the target, as its apply has it, where there are several"),
        _TARGET,
        _DATABASE,
        _arg("--values", action="store_true", help="show values of rows that differ; they may be personal data"),
        _arg("--keys", metavar="FOLDER", help="write the keys of all rows that differ there, as Parquet; a folder for each topic"),
        _arg("--repair", action="store_true", help="have rows that differ read again, by signals to the connector; the next apply repairs the tables"),
        _arg(
            "--timeout", type=seconds, default=600.0, metavar="SECONDS",
            help="how long to wait for the capture, and then for the apply, to come to the position of the rows (default: %(default)s)",
        ),
        _arg("--scratch", metavar="URL", help="where the source's rows are written meanwhile; by default below the change log"),
        _arg("--keep", action="store_true", help="leave them there"),
        *_SPARK,
        _OUTPUT,
        _STATE,
        where="verify.verify",
        description="Exit status: 0 all tables are equal to the source, 1 some are not, 2 some could not be compared. Tables that can never be compared, "
        "as their rows are events (mode log, outboxes), are named and do not count unless --tables means them. No table is changed.",
    )  # fmt: skip


def _rebuild() -> ActionCommand:
    return _command(
        "rebuild",
        "Build tables again from the change log, in their places or beside them",
        _CONNECTOR,
        _arg(
            "table", nargs="+", help="<database>.<table>, or a topic; or the location of one of the tables of a route"
        ),
        _arg(
            "--to",
            metavar="LOCATION",
            help="build them there, beside those that there are; {place} tells the tables of a route apart",
        ),
        _arg("--batch", type=int, help="with --to: the last batch to build from; the newest if not given"),
        _arg(
            "--time",
            help="with --to: the last batch that was committed by then, for example 2026-03-01T12:00:00+00:00",
        ),
        _arg("--location", help="the target, as its apply has it, where there are several"),
        _TARGET,
        _DATABASE,
        *_SPARK,
        _OUTPUT,
        _STATE,
        where="verify.rebuild",
        description="A table is built as of its own last batch, and replaced by one commit; capture and apply go on. Each of the tables that a route makes "
        "is a commit of its own.",
    )


def _steering() -> list[ActionCommand]:
    reason = _arg("--reason", default="", help="why; the status and the page show it")
    wait = _arg("--wait", action="store_true", help="wait until the run that is alive has ended")
    return [
        _command(
            "status", "Show the status of a connector: state, offset, last error, signals under way", _CONNECTOR, _STATE,
            _OUTPUT, where="lifecycle.status", description="Exit status: 0, or 1 when the last run failed.",
        ),
        _command(
            "pause", "Pause a connector: the run that is alive ends within seconds, new runs are skipped", _CONNECTOR, reason, wait,
            _STATE, where="lifecycle.pause",
        ),
        _command("resume", "Resume a connector: the next run goes on where the offset stands", _CONNECTOR, reason, _STATE, where="lifecycle.resume"),
        _command(
            "stop", "Stop a connector, until it is resumed", _CONNECTOR, reason, wait, _STATE,
            where="lifecycle.stop",
        ),
        _command(
            "restart", "End the run that is alive; the next one reads definition and connection anew", _CONNECTOR, reason, _STATE,
            where="lifecycle.restart",
        ),
    ]  # fmt: skip


def _delete() -> ActionCommand:
    return _command(
        "delete",
        "Delete the state of a connector: offset, histories, signals, notifications",
        _CONNECTOR,
        _arg("--yes-delete", metavar="NAME", help="carry it out; NAME is the connector's name"),
        _arg("--with-changelog", action="store_true", help="delete its change log too"),
        _STATE,
        where="lifecycle.delete",
        description="Tables that were written from it are not touched. Without --yes-delete nothing is deleted.",
    )


def _offset() -> GroupCommand:
    change = (_CONFIRM, _DRY, _STATE)
    return GroupCommand(
        name="offset",
        help="Show, move, forget and restore the offset of a connector",
        subcommands=[
            _command("show", "Show the offset as it is stored", _CONNECTOR, _STATE, where="lifecycle.offset_show"),
            _command(
                "history", "List the offsets that a connector has had", _CONNECTOR, _LIMIT, _STATE, _OUTPUT,
                where="lifecycle.offset_history",
            ),
            _command(
                "set", "Go on from another position in the log",
                _arg("--to", metavar="JSON", required=True, help="position, as 'offset show' has it"), _CONNECTOR, *change,
                where="lifecycle.offset_set", description=_TELLS,
            ),
            _command(
                "reset", "Forget the position: the next run reads all tables again", _CONNECTOR, *change,
                where="lifecycle.offset_reset", description=_TELLS,
            ),
            _command(
                "restore", "Go back to an offset that the connector has had",
                _arg("version", type=int, help="as 'offset history' has it"), _CONNECTOR, *change,
                where="lifecycle.offset_restore", description=_TELLS,
            ),
        ],
    )  # fmt: skip


_TELLS = "Prints what would be skipped or repeated. The offset changes only with --confirm and the connector's name."


def _gap() -> ActionCommand:
    return _command(
        "gap",
        "Ask whether the source's log still holds a connector's position, and repair it if not",
        _CONNECTOR,
        _arg(
            "--repair",
            choices=("snapshot", "incremental", "skip"),
            help="read all tables again first; or beside the stream; or accept the loss",
        ),
        _CONFIRM,
        _DRY,
        _STATE,
        _OUTPUT,
        where="lifecycle.gap",
        description="Exit status: 0 no gap, or repaired; 1 there is a gap. With --repair, only --confirm carries it out.",
    )


def _procedures() -> list[GroupCommand]:
    """What an administrator can have done at a source, for each kind that offers something."""
    return [
        GroupCommand(
            name=kind,
            help=f"Have something done at a {kind} database, so that tables can be captured",
            subcommands=[_procedure(procedure) for procedure in found.values()],
        )
        for kind in sorted(SOURCES)
        if (found := procedures(kind))
    ]


def _procedure(procedure: Procedure) -> ActionCommand:
    flags = [_arg(f"--{flag.name}", action="store_true", help=flag.help) for flag in procedure.flags]
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
            _CONNECTOR, _arg("table", help="its name, as signal.data.collection has it: <schema>.<table>"), *flags, _CONFIRM, _DRY,
            _STATE, _OUTPUT, ARG_VERBOSE,
        ),
    )  # fmt: skip


def _signals() -> list[ActionCommand]:
    id_ = _arg("--id", help="id of the signal, for notifications; by default a random one")
    return [
        _command(
            "signal", "Send a signal to a connector", _CONNECTOR,
            _arg("type", help="execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot, log, …"),
            _arg("--data", metavar="JSON", help="data of the signal; @FILE reads them from a file"), id_, _WAIT, _STATE,
            where="signals.signal",
        ),
        _command(
            "snapshot", "Read tables again while changes are captured", _CONNECTOR,
            _arg("table", nargs="+", help="<database>.<table>, or a regular expression"),
            _arg("--type", choices=("incremental", "blocking"), default="incremental", help="(default: %(default)s)"),
            _arg(
                "--filter", action="append", metavar="TABLE=SQL",
                help="read only some rows: a condition (incremental), or a SELECT (blocking); may be repeated",
            ),
            _arg("--surrogate-key", metavar="COLUMN", help="column to cut chunks by, instead of the key"),
            _arg("--chunk-size", type=int, metavar="N", help="rows that are read at a time; by default as the connector has it"),
            _arg("--replace", action="store_true", help="empty the tables in the targets first, so that rows that are gone disappear"),
            id_, _WAIT, _STATE, where="signals.snapshot",
        ),
        _command(
            "signals", "List the signals of a connector with their states", _CONNECTOR, _LIMIT,
            _arg("--number", type=int, help="only this one"), _STATE, _OUTPUT, where="signals.signals",
        ),
        _command(
            "notifications", "Print the notifications of a connector: what has happened to its snapshots and signals", _CONNECTOR, _LIMIT,
            _arg("--follow", "-f", action="store_true", help="go on with new ones until interrupted"), _STATE, _OUTPUT,
            where="signals.notifications", description="With -o json, one object per line.",
        ),
    ]  # fmt: skip
