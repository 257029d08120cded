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
    build_argument("--jars", help="comma-separated jars of the table format, if Spark cannot download them"),
    build_argument(
        "--packages", metavar="COORDINATES",
        help="comma-separated Maven coordinates of the packages that Spark needs, including the table format, as for the apply",
    ),
    build_argument(
        "--spark-version", metavar="RELEASE", default="",
        help="release of Spark that runs the job, such as 4.0, by which the packages are chosen (default: that of the installed PySpark)",
    ),
    build_argument("--conf", action="append", metavar="NAME=VALUE", help="a Spark setting, such as a catalog setting; may be repeated"),
)  # fmt: skip
_TARGET = build_argument("--target", help="only targets of this kind: delta, iceberg or database")
_DATABASE = build_argument(
    "--database",
    metavar="CONN_ID",
    help="connection to the target database, if the last apply to it has not recorded the connection",
)


def table_commands() -> list[ActionCommand]:
    """In the order of the help text."""
    return [_maintain(), *_targets(), _verify(), _rebuild()]


def _maintain() -> ActionCommand:
    return define_command(
        "maintain",
        "Maintain a connector: remove batches and rows of the state tables that are no longer needed, compact small files and deletes of its tables, and remove old snapshots and files",
        CONNECTOR,
        build_argument(
            "--only", choices=("retention", "tables"),
            help="only the change log and the state tables, which needs no Spark; or only the target tables",
        ),
        build_argument(
            "--now", action="store_true",
            help="with --only retention, on a full disk: remove all batches that every target has applied, without waiting for changelog.retention.ms",
        ),
        build_argument("--dry-run", action="store_true", help="print the data that would be removed from the change log, and change nothing; nothing else is checked"),
        build_argument("--location", help="only the target at this location, as given to its apply (default: all targets)"),
        _TARGET,
        build_argument(
            "--keep-hours", type=float, default=168.0, metavar="HOURS",
            help="how long to keep files and snapshots after they were replaced (default: a week; at least 1)",
        ),
        *_SPARK,
        OUTPUT,
        STATE,
        where="maintain.run_maintenance",
        description="Exit status: 0 done, or nothing to do; 1 the change log or some tables could not be maintained. Rows and last batches do not change. changelog.retention.ms "
        "and changelog.retention.bytes of the connector set how long batches are kept.",
    )  # fmt: skip


def _targets() -> list[ActionCommand]:
    return [
        define_command(
            "targets", "List the targets of a connector, and since when each of them holds back batches of the change log", CONNECTOR, STATE, OUTPUT,
            where="maintain.list_targets",
        ),
        define_command(
            "forget-target", "Stop keeping batches for a target that no longer exists", CONNECTOR,
            build_argument("--target", required=True, metavar="KIND", help="kind of the target: delta, iceberg or database"),
            build_argument("--location", required=True, help="location of the target, as given to its apply"),
            CONFIRM, DRY, STATE, where="maintain.forget_target",
            description="Prints the progress of the target. The target is forgotten only with --confirm and the connector's name; its tables are not changed.",
        ),
    ]  # fmt: skip


def _verify() -> ActionCommand:
    return define_command(
        "verify",
        "Verify the tables of a target against the source, value by value, while capture and apply continue",
        CONNECTOR,
        build_argument("--tables", action="append", metavar="PATTERN", help="only tables that match, as in table.include.list; may be repeated"),
        build_argument("--location", help="location of the target, as given to its apply, if the connector has several targets"),
        _TARGET,
        _DATABASE,
        build_argument("--values", action="store_true", help="show values of rows that differ; they may be personal data"),
        build_argument("--keys", metavar="FOLDER", help="write the keys of all rows that differ to this folder as Parquet, with one folder for each topic"),
        build_argument("--repair", action="store_true", help="snapshot the rows that differ again, by signals to the connector; the next apply repairs the tables"),
        build_argument(
            "--timeout", type=parse_seconds, default=600.0, metavar="SECONDS",
            help="how long to wait for the capture, and then for the apply, to reach the position of the rows (default: %(default)s)",
        ),
        build_argument("--scratch", metavar="URL", help="temporary location for the source's rows (default: below the change log)"),
        build_argument("--keep", action="store_true", help="keep the source's rows there after the verification"),
        *_SPARK,
        OUTPUT,
        STATE,
        where="verify.verify_tables",
        description="Exit status: 0 all tables are equal to the source, 1 some differ, 2 some could not be verified. Tables that can never be verified "
        "because their rows are events (mode log, outboxes) are listed and do not count unless --tables selects them. No table is changed.",
    )  # fmt: skip


def _rebuild() -> ActionCommand:
    return define_command(
        "rebuild",
        "Rebuild tables from the change log, in place or beside the existing tables",
        CONNECTOR,
        build_argument(
            "table", nargs="+", help="<database>.<table>, or a topic; or the location of one of the tables of a route"
        ),
        build_argument(
            "--to",
            metavar="LOCATION",
            help="rebuild the tables at this location, beside the existing tables; {place} distinguishes the tables of a route",
        ),
        build_argument("--batch", type=int, help="with --to: the last batch to include (default: the newest)"),
        build_argument(
            "--time",
            help="with --to: the last batch to include, by commit time, for example 2026-03-01T12:00:00+00:00",
        ),
        build_argument(
            "--location", help="location of the target, as given to its apply, if the connector has several targets"
        ),
        _TARGET,
        _DATABASE,
        *_SPARK,
        OUTPUT,
        STATE,
        where="verify.rebuild_tables",
        description="A table is rebuilt as of its last batch and replaced by one commit; capture and apply continue. Each table of a route "
        "is replaced by a separate commit.",
    )
