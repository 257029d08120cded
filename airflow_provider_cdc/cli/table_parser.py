"""The commands under ``airflow cdc`` that work on the tables of targets. Read by every call of ``airflow``."""

from __future__ import annotations

from airflow.cli.cli_config import ActionCommand

from airflow_provider_cdc.cli.arguments import CONFIRM, CONNECTOR, DRY, OUTPUT, STATE, action, arg, seconds

_SPARK = (
    arg("--spark-conn-id", default="spark_default", help="connection to Spark (default: %(default)s)"),
    arg("--jars", help="jars of the kind of table, where Spark cannot fetch them by itself; with commas between them"),
    arg(
        "--packages", metavar="COORDINATES",
        help="Maven coordinates of what Spark needs, that of the kind of table among them, as for the apply; with commas between them",
    ),
    arg("--conf", action="append", metavar="NAME=VALUE", help="a setting of Spark, such as those of a catalog; may be repeated"),
)  # fmt: skip
_TARGET = arg("--target", help="only this kind of tables: delta, iceberg or database")
_DATABASE = arg(
    "--database", metavar="CONN_ID", help="connection to a target database, where its last apply has not recorded it"
)


def table_commands() -> list[ActionCommand]:
    """In the order of the help text."""
    return [_maintain(), *_targets(), _verify(), _rebuild()]


def _maintain() -> ActionCommand:
    return action(
        "maintain",
        "Maintain a connector: remove batches and old rows of the state tables that nobody needs any more; small files, deletes, old snapshots and files of its tables",
        CONNECTOR,
        arg(
            "--only", choices=("retention", "tables"),
            help="only change log and state tables, for which Spark is not needed; or only the tables",
        ),
        arg("--dry-run", action="store_true", help="change nothing, and print what would be removed from the change log; nothing else is looked at"),
        arg("--location", help="only this target, as its apply has it; without it, all that were applied to"),
        _TARGET,
        arg(
            "--keep-hours", type=float, default=168.0, metavar="HOURS",
            help="how long files and snapshots stay after they were replaced (default: a week; at least 1)",
        ),
        *_SPARK,
        OUTPUT,
        STATE,
        where="maintain.maintain",
        description="Exit status: 0 done, or nothing to do; 1 the change log or some tables could not be maintained. Rows and last batches stay as they are. How long batches "
        "are kept say changelog.retention.ms and changelog.retention.bytes of the connector.",
    )  # fmt: skip


def _targets() -> list[ActionCommand]:
    return [
        action(
            "targets", "List the targets of a connector, and since when each of them holds batches of the change log back", CONNECTOR, STATE, OUTPUT,
            where="maintain.targets",
        ),
        action(
            "forget-target", "Have a target that there is no more hold nothing back", CONNECTOR,
            arg("--target", required=True, metavar="KIND", help="kind of its tables: delta, iceberg or database"),
            arg("--location", required=True, help="where they are, as its apply had it"),
            CONFIRM, DRY, STATE, where="maintain.forget_target",
            description="Tells what the target has. Only with --confirm and the connector's name it is forgotten; its tables are not touched.",
        ),
    ]  # fmt: skip


def _verify() -> ActionCommand:
    return action(
        "verify",
        "Compare the tables of a target with the source, value by value, while capture and apply go on",
        CONNECTOR,
        arg("--tables", action="append", metavar="PATTERN", help="only tables like this, as in table.include.list; may be repeated"),
        arg("--location", help="the target, as its apply has it, where there are several"),
        _TARGET,
        _DATABASE,
        arg("--values", action="store_true", help="show values of rows that differ; they may be personal data"),
        arg("--keys", metavar="FOLDER", help="write the keys of all rows that differ there, as Parquet; a folder for each topic"),
        arg("--repair", action="store_true", help="have rows that differ read again, by signals to the connector; the next apply repairs the tables"),
        arg(
            "--timeout", type=seconds, default=600.0, metavar="SECONDS",
            help="how long to wait for the capture, and then for the apply, to come to the position of the rows (default: %(default)s)",
        ),
        arg("--scratch", metavar="URL", help="where the source's rows are written meanwhile; by default below the change log"),
        arg("--keep", action="store_true", help="leave them there"),
        *_SPARK,
        OUTPUT,
        STATE,
        where="verify.verify",
        description="Exit status: 0 all tables are equal to the source, 1 some are not, 2 some could not be compared. Tables that can never be compared, "
        "as their rows are events (mode log, outboxes), are named and do not count unless --tables means them. No table is changed.",
    )  # fmt: skip


def _rebuild() -> ActionCommand:
    return action(
        "rebuild",
        "Build tables again from the change log, in their places or beside them",
        CONNECTOR,
        arg("table", nargs="+", help="<database>.<table>, or a topic; or the location of one of the tables of a route"),
        arg(
            "--to",
            metavar="LOCATION",
            help="build them there, beside those that there are; {place} tells the tables of a route apart",
        ),
        arg("--batch", type=int, help="with --to: the last batch to build from; the newest if not given"),
        arg(
            "--time",
            help="with --to: the last batch that was committed by then, for example 2026-03-01T12:00:00+00:00",
        ),
        arg("--location", help="the target, as its apply has it, where there are several"),
        _TARGET,
        _DATABASE,
        *_SPARK,
        OUTPUT,
        STATE,
        where="verify.rebuild",
        description="A table is built as of its own last batch, and replaced by one commit; capture and apply go on. Each of the tables that a route makes "
        "is a commit of its own.",
    )
