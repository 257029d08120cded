"""The commands under ``airflow cdc`` that work on the tables of targets. Read by every call of ``airflow``."""

from __future__ import annotations

from airflow.cli.cli_config import ActionCommand

from airflow_provider_cdc.cli.arguments import (
    CONFIRM,
    CONNECTOR,
    DRY,
    OUTPUT,
    STATE,
    build_argument,
    define_command,
    parse_seconds,
)

_SPARK = (
    build_argument("--spark-conn-id", default="spark_default", help="connection to Spark (default: %(default)s)"),
    build_argument("--jars", help="jars of the kind of table, where Spark cannot fetch them by itself; with commas between them"),
    build_argument(
        "--packages", metavar="COORDINATES",
        help="Maven coordinates of what Spark needs, that of the kind of table among them, as for the apply; with commas between them",
    ),
    build_argument("--conf", action="append", metavar="NAME=VALUE", help="a setting of Spark, such as those of a catalog; may be repeated"),
)  # fmt: skip
_TARGET = build_argument("--target", help="only this kind of tables: delta, iceberg or database")
_DATABASE = build_argument(
    "--database", metavar="CONN_ID", help="connection to a target database, where its last apply has not recorded it"
)


def table_commands() -> list[ActionCommand]:
    """In the order of the help text."""
    return [_maintain(), *_targets(), _verify(), _rebuild()]


def _maintain() -> ActionCommand:
    return define_command(
        "maintain",
        "Maintain a connector: remove batches and old rows of the state tables that nobody needs any more; small files, deletes, old snapshots and files of its tables",
        CONNECTOR,
        build_argument(
            "--only", choices=("retention", "tables"),
            help="only change log and state tables, for which Spark is not needed; or only the tables",
        ),
        build_argument("--dry-run", action="store_true", help="change nothing, and print what would be removed from the change log; nothing else is looked at"),
        build_argument("--location", help="only this target, as its apply has it; without it, all that were applied to"),
        _TARGET,
        build_argument(
            "--keep-hours", type=float, default=168.0, metavar="HOURS",
            help="how long files and snapshots stay after they were replaced (default: a week; at least 1)",
        ),
        *_SPARK,
        OUTPUT,
        STATE,
        where="maintain.run_maintenance",
        description="Exit status: 0 done, or nothing to do; 1 the change log or some tables could not be maintained. Rows and last batches stay as they are. How long batches "
        "are kept say changelog.retention.ms and changelog.retention.bytes of the connector.",
    )  # fmt: skip


def _targets() -> list[ActionCommand]:
    return [
        define_command(
            "targets", "List the targets of a connector, and since when each of them holds batches of the change log back", CONNECTOR, STATE, OUTPUT,
            where="maintain.list_targets",
        ),
        define_command(
            "forget-target", "Have a target that there is no more hold nothing back", CONNECTOR,
            build_argument("--target", required=True, metavar="KIND", help="kind of its tables: delta, iceberg or database"),
            build_argument("--location", required=True, help="where they are, as its apply had it"),
            CONFIRM, DRY, STATE, where="maintain.forget_target",
            description="Tells what the target has. Only with --confirm and the connector's name it is forgotten; its tables are not touched.",
        ),
    ]  # fmt: skip


def _verify() -> ActionCommand:
    return define_command(
        "verify",
        "Compare the tables of a target with the source, value by value, while capture and apply go on",
        CONNECTOR,
        build_argument("--tables", action="append", metavar="PATTERN", help="only tables like this, as in table.include.list; may be repeated"),
        build_argument("--location", help="the target, as its apply has it, where there are several"),
        _TARGET,
        _DATABASE,
        build_argument("--values", action="store_true", help="show values of rows that differ; they may be personal data"),
        build_argument("--keys", metavar="FOLDER", help="write the keys of all rows that differ there, as Parquet; a folder for each topic"),
        build_argument("--repair", action="store_true", help="have rows that differ read again, by signals to the connector; the next apply repairs the tables"),
        build_argument(
            "--timeout", type=parse_seconds, default=600.0, metavar="SECONDS",
            help="how long to wait for the capture, and then for the apply, to come to the position of the rows (default: %(default)s)",
        ),
        build_argument("--scratch", metavar="URL", help="where the source's rows are written meanwhile; by default below the change log"),
        build_argument("--keep", action="store_true", help="leave them there"),
        *_SPARK,
        OUTPUT,
        STATE,
        where="verify.verify_tables",
        description="Exit status: 0 all tables are equal to the source, 1 some are not, 2 some could not be compared. Tables that can never be compared, "
        "as their rows are events (mode log, outboxes), are named and do not count unless --tables means them. No table is changed.",
    )  # fmt: skip


def _rebuild() -> ActionCommand:
    return define_command(
        "rebuild",
        "Build tables again from the change log, in their places or beside them",
        CONNECTOR,
        build_argument(
            "table", nargs="+", help="<database>.<table>, or a topic; or the location of one of the tables of a route"
        ),
        build_argument(
            "--to",
            metavar="LOCATION",
            help="build them there, beside those that there are; {place} tells the tables of a route apart",
        ),
        build_argument("--batch", type=int, help="with --to: the last batch to build from; the newest if not given"),
        build_argument(
            "--time",
            help="with --to: the last batch that was committed by then, for example 2026-03-01T12:00:00+00:00",
        ),
        build_argument("--location", help="the target, as its apply has it, where there are several"),
        _TARGET,
        _DATABASE,
        *_SPARK,
        OUTPUT,
        STATE,
        where="verify.rebuild_tables",
        description="A table is built as of its own last batch, and replaced by one commit; capture and apply go on. Each of the tables that a route makes "
        "is a commit of its own.",
    )
