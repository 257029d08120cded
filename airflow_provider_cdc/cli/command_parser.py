"""The commands under ``airflow cdc``. Read by every call of ``airflow``: nothing is imported that is not needed for help texts."""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, GroupCommand, lazy_load_command

from airflow_provider_cdc.cli.arguments import (
    CONFIRM,
    CONNECTOR,
    DRY,
    LIMIT,
    OPTIONAL_CONNECTOR,
    OUTPUT,
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
        _state(),
        _check(),
        _grants(),
        _import(),
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
        "Create the connection to the state tables. In Airflow's metadata database, it has a role that may use these tables alone",
        build_argument("--conn-id", default="cdc_state_default", help="connection to create (default: %(default)s)"),
        build_argument("--role", metavar="NAME", help="name of the role (default: cdc_state); the SQL that creates it is printed"),
        build_argument(
            "--with-airflows-login", action="store_true",
            help="use the login of the metadata database itself: every user of the connection can then read and change all data of Airflow",
        ),
        build_argument(
            "--url",
            help="SQLAlchemy URL of another database, in which 'airflow cdc state migrate' creates the tables; - reads the URL from standard input",
        ),
        build_argument(
            "--print-password", action="store_true",
            help="write the role's password into the SQL, instead of a hash of it; for a MariaDB server, which knows no such hash",
        ),
        build_argument("--require-tls", action="store_true", help="MySQL: the role can log in only with TLS"),
        build_argument(
            "--replace", action="store_true", help="replace an existing connection that has different settings"
        ),
        where="setup.setup_connection",
    )  # fmt: skip


def _state() -> GroupCommand:
    return GroupCommand(
        name="state",
        help="Create, upgrade and fill a state database beside Airflow's metadata DB",
        subcommands=[
            define_command(
                "migrate", "Create or upgrade the state tables in a database that is not Airflow's metadata DB",
                build_argument("--conn-id", default="cdc_state_default", help="connection to the database (default: %(default)s)"),
                where="state.migrate_state",
                description="In the metadata DB, airflow db migrate does it. The connection's login must be allowed to create tables.",
            ),
            define_command(
                "copy", "Move the state of all connectors to another database",
                build_argument("--from-conn-id", metavar="CONN", required=True, help="connection to the present state tables"),
                build_argument("--to-conn-id", metavar="CONN", required=True, help="connection to empty state tables, which 'state migrate' has created"),
                where="state.copy_connectors",
                description="Rejected while any run is alive. Afterwards the old tables are fenced: every use of them is an error that names the new connection.",
            ),
        ],
    )  # fmt: skip


def _import() -> ActionCommand:
    return define_command(
        "import", "Make a definition of the configuration of a Debezium connector",
        build_argument("file", help="JSON as for Kafka Connect, a KafkaConnector in YAML, or lines with name=value; - reads standard input"),
        build_argument("--source", help="kind of source, if connector.class does not name it"),
        build_argument("--conn-id", metavar="CONN", help="Airflow connection to the source (default: the name of the connector)"),
        build_argument("--changelog", metavar="URL", default="/data/changelog", help="place of the change log (default: %(default)s)"),
        build_argument("--target", choices=("delta", "iceberg", "none"), default="delta", help="tables to keep (default: %(default)s)"),
        build_argument("--location", metavar="URL", default="/data/lake/{database}/{table}", help="place of the tables (default: %(default)s)"),
        build_argument("--form", choices=("python", "yaml"), default="python", help="a file for the DAG folder, or for a folder of definitions (default: %(default)s)"),
        build_argument("--write", metavar="FILE", help="new file for the definition, which is printed otherwise"),
        where="check.import_definition",
        description="Prints, of each property, whether it is taken, renamed, moved to the connection, without effect, or refused with its reason; exit status 1 if one is refused.",
    )  # fmt: skip


def _check() -> ActionCommand:
    return define_command(
        "check",
        "Check that a database is ready for capture, and show the progress of a connector",
        build_argument("connector", nargs="?", help="name of a connector that has run"),
        build_argument("--conn-id", help="before the first run: the connection to the database"),
        build_argument("--source", help="kind of source, if the connection type does not give it"),
        STATE,
        OUTPUT,
        where="check.check_source",
        description="Exit status: 0 ready; 1 not ready, and the output lists the statements that fix it.",
    )


def _grants() -> ActionCommand:
    return define_command(
        "grants",
        "Print the statements that create the account of a capture, with the reason of each",
        build_argument("source", help=f"kind of source: {', '.join(sorted({*SOURCES} - {'memory', 'debezium'}))}"),
        build_argument("--section", help="only this section of the file"),
        build_argument("--account", metavar="NAME", help="name of the account; of MySQL and MariaDB also NAME@HOST"),
        build_argument(
            "--database",
            action="append",
            metavar="NAME",
            help="a captured database of MySQL, MariaDB or MongoDB; may be repeated",
        ),
        build_argument(
            "--table",
            action="append",
            metavar="SCHEMA.TABLE",
            help="a captured table of Oracle or Db2; may be repeated",
        ),
        where="check.print_grants",
        description="Nothing is executed. An administrator of the database reviews and runs the statements.",
    )


def _lists() -> list[ActionCommand]:
    return [
        define_command(
            "examples",
            "List the example DAGs and the Grafana dashboard, print one of them, or copy them to a folder",
            build_argument("name", nargs="?", help="an example; without --to, it is printed"),
            build_argument(
                "--to", metavar="FOLDER", help="the folder to copy to; without a name, all examples are copied"
            ),
            where="setup.show_examples",
        ),
        define_command(
            "spark-files",
            "Write the scripts and the package of Spark jobs to a folder or an object store, for platforms that need a URI",
            build_argument("--to", metavar="URL", required=True, help="the folder or prefix, such as s3://lake/cdc"),
            build_argument("--storage-conn-id", metavar="ID", help="connection with fsspec options in its extra"),
            where="setup.copy_spark_files",
        ),
        define_command(
            "connectors",
            "List connectors with their states and offsets",
            STATE,
            OUTPUT,
            where="list_commands.list_connectors",
        ),
        define_command(
            "metrics",
            "Show the metrics of captures and applies: totals over all runs, and latest values",
            OPTIONAL_CONNECTOR,
            build_argument(
                "--openmetrics",
                action="store_true",
                help="print OpenMetrics text, for example for Prometheus' textfile collector",
            ),
            STATE,
            OUTPUT,
            where="metrics.show_metrics",
        ),
        define_command(
            "offsets", "Show the offsets in full", OPTIONAL_CONNECTOR, STATE, OUTPUT, where="list_commands.list_offsets"
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
        build_argument("--follow", "-f", action="store_true", help="continue with new batches until interrupted"),
        build_argument("--topic", action="append", metavar="TOPIC", help="only this topic; may be repeated"),
        build_argument("--from-batch", type=int, help="first batch to print (default: the log start)"),
        build_argument("--limit", type=int, help="stop after this many records"),
        build_argument(
            "--form",
            default="debezium",
            help="form of the events: debezium, or a form specific to the source (default: %(default)s)",
        ),
        build_argument(
            "--schemas", action="store_true", help="include the schemas of keys and values, as with schemas.enable"
        ),
        _CHANGELOG,
        build_argument(
            "--storage-conn-id",
            help="connection with the fsspec options of the change log, if the options of the connector's runs are not known",
        ),
        STATE,
        where="events.export_events",
        description="Records have topic, key, value and headers; a delete is followed by its tombstone, whose value is null.",
    )


def _row() -> ActionCommand:
    return define_command(
        "row",
        "Show every change of one row from the change log, newest first",
        build_argument("table", help="current name of the table: <database>.<table> or <schema>.<table>"),
        build_argument("key", nargs="+", help="values of the key columns in order, or one JSON object with all of them"),
        build_argument("--connector", help="the connector, if several connectors capture the table"),
        build_argument("--as-of", metavar="TIME", help="show the row as of a time, for example 2026-03-01T12:00:00+00:00, by the key that it had then"),
        build_argument("--compare", action="store_true", help="also read the row from the source, and show the differences"),
        build_argument("--database-conn-id", action="append", metavar="CONN", help="connection to a target database, to also read the row there; may be repeated"),
        build_argument(
            "--timeout", type=parse_seconds, default=60.0, metavar="SECONDS",
            help="maximum time to search batches that the index of keys does not contain yet (default: %(default)s)",
        ),
        build_argument("--json", action="store_true", help="same as -o json"),
        STATE,
        OUTPUT,
        where="row.show_row_history",
        description="The output contains data: [cdc] show_rows_of in Airflow's configuration must allow it, and each call is recorded as a notification of the connector. "
        "Exit status: 0; 2 if the timeout ended before all batches were searched.",
    )  # fmt: skip


def _steering() -> list[ActionCommand]:
    reason = build_argument("--reason", default="", help="reason, which the status and the page show")
    wait = build_argument("--wait", action="store_true", help="wait until the active run has ended")
    return [
        define_command(
            "status", "Show the status of a connector: state, offset, last error, active signals", CONNECTOR, STATE,
            OUTPUT, where="lifecycle.show_status", description="Exit status: 0, or 1 when the last capture failed; a failed apply is under Owed.",
        ),
        define_command(
            "pause", "Pause a connector: the active run ends within seconds, and new runs are skipped", CONNECTOR, reason, wait,
            STATE, where="lifecycle.pause_connector",
        ),
        define_command("resume", "Resume a connector: the next run continues from the offset", CONNECTOR, reason, STATE, where="lifecycle.resume_connector"),
        define_command(
            "stop", "Stop a connector until it is resumed", CONNECTOR, reason, wait, STATE,
            where="lifecycle.stop_connector",
        ),
        define_command(
            "restart", "End the active run; the next run reads definition and connection again", CONNECTOR, reason, STATE,
            where="lifecycle.restart_run",
        ),
    ]  # fmt: skip


def _delete() -> ActionCommand:
    return define_command(
        "delete",
        "Delete the state of a connector: offset, histories, signals, notifications",
        CONNECTOR,
        build_argument("--yes-delete", metavar="NAME", help="delete the state; NAME is the connector's name"),
        build_argument("--with-changelog", action="store_true", help="delete its change log too"),
        STATE,
        where="lifecycle.delete_connector",
        description="Target tables are not changed. Without --yes-delete nothing is deleted.",
    )


def _offset() -> GroupCommand:
    change = (CONFIRM, DRY, STATE)
    return GroupCommand(
        name="offset",
        help="Show, set, reset and restore the offset of a connector",
        subcommands=[
            define_command("show", "Show the offset as it is stored", CONNECTOR, STATE, where="lifecycle.offset_show"),
            define_command(
                "history", "List the offset history of a connector", CONNECTOR, LIMIT, STATE, OUTPUT,
                where="lifecycle.offset_history",
            ),
            define_command(
                "set", "Continue from another position in the log",
                build_argument("--to", metavar="JSON", required=True, help="position, in the form that 'offset show' prints"), CONNECTOR, *change,
                where="lifecycle.offset_set", description=_TELLS,
            ),
            define_command(
                "reset", "Remove the position: the next run takes a snapshot of all tables", CONNECTOR, *change,
                where="lifecycle.offset_reset", description=_TELLS,
            ),
            define_command(
                "restore", "Restore an offset from the history",
                build_argument("version", type=int, help="version that 'offset history' lists"), CONNECTOR, *change,
                where="lifecycle.offset_restore", description=_TELLS,
            ),
        ],
    )  # fmt: skip


_TELLS = "Prints which changes would be skipped or repeated. The offset changes only with --confirm and the connector's name."


def _gap() -> ActionCommand:
    return define_command(
        "gap",
        "Check whether the source's log still contains a connector's position, and repair the gap if not",
        CONNECTOR,
        build_argument(
            "--repair",
            choices=("snapshot", "incremental", "skip"),
            help="take a snapshot of all tables first; or an incremental snapshot beside the stream; or accept the loss",
        ),
        CONFIRM,
        DRY,
        STATE,
        OUTPUT,
        where="lifecycle.check_gap",
        description="Exit status: 0 no gap, or repaired; 1 gap found. The repair runs only with --confirm.",
    )


def _procedures() -> list[GroupCommand]:
    """Build the commands that an administrator can run at a source, for each kind that offers some."""
    return [
        GroupCommand(
            name=kind,
            help=f"Change a {kind} database so that tables can be captured",
            subcommands=[_procedure(procedure) for procedure in procedures.values()],
        )
        for kind in sorted(SOURCES)
        if (procedures := load_procedures(kind))
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
        description="Prints the statements and their consequences. The statements run only with --confirm and the connector's name.",
        func=run,
        args=(
            CONNECTOR, build_argument("table", help="name of the table, in the form of signal.data.collection: <schema>.<table>"), *flags, CONFIRM, DRY,
            STATE, OUTPUT, ARG_VERBOSE,
        ),
    )  # fmt: skip


def _signals() -> list[ActionCommand]:
    id_ = build_argument("--id", help="id of the signal, for its notifications (default: a random id)")
    return [
        define_command(
            "signal", "Send a signal to a connector", CONNECTOR,
            build_argument("type", help="execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot, log, …"),
            build_argument("--data", metavar="JSON", help="data of the signal; @FILE reads the data from a file"), id_, WAIT, STATE,
            where="signals.send_signal",
        ),
        define_command(
            "snapshot", "Take a snapshot of tables while changes are captured", CONNECTOR,
            build_argument("table", nargs="+", help="<database>.<table>, or a regular expression"),
            build_argument("--type", choices=("incremental", "blocking"), help="(default: incremental, or blocking with --on-spark)"),
            build_argument("--on-spark", action="store_true", help="have executors of Spark read the tables; the stream waits (blocking)"),
            build_argument(
                "--filter", action="append", metavar="TABLE=SQL",
                help="read only some rows: a condition (incremental), or a SELECT (blocking); may be repeated",
            ),
            build_argument("--surrogate-key", metavar="COLUMN", help="column that divides the table into chunks, instead of the key"),
            build_argument("--chunk-size", type=int, metavar="N", help="rows of a chunk (default: the connector's setting)"),
            build_argument("--replace", action="store_true", help="empty the target tables first, so that deleted rows disappear"),
            id_, WAIT, STATE, where="signals.request_snapshot",
        ),
        define_command(
            "signals", "List the signals of a connector with their states", CONNECTOR, LIMIT,
            build_argument("--number", type=int, help="only the signal with this number"), STATE, OUTPUT, where="signals.list_signals",
        ),
        define_command(
            "notifications", "Print the notifications of a connector about its snapshots and signals", CONNECTOR, LIMIT,
            build_argument("--follow", "-f", action="store_true", help="continue with new notifications until interrupted"), STATE, OUTPUT,
            where="signals.list_notifications", description="With -o json, one object per line.",
        ),
    ]  # fmt: skip
