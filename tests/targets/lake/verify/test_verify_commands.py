"""``airflow cdc verify`` and ``rebuild`` on tables of a MariaDB, with the real ``spark-submit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from dev.bootstrap.jars import ensure
from dev.servers import S3
from tests.cli.conftest import run
from tests.targets.lake.followed_mariadb import FollowedMariaDb

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _run(capfd: Any, *line: str) -> tuple[object, str]:
    """Exit status and what was printed."""
    capfd.readouterr()
    try:
        run(*line)
    except SystemExit as e:
        return e.code, capfd.readouterr().out
    return 0, capfd.readouterr().out


def _set_s3_environment(s3: S3, monkeypatch: pytest.MonkeyPatch, conf: Path) -> None:
    """Python and Spark find the S3 server by what the machine's administrator would set."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    settings = {
        "endpoint": s3.endpoint, "endpoint.region": s3.region, "path.style.access": "true", "connection.ssl.enabled": "false",
    }  # fmt: skip
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("".join(f"spark.hadoop.fs.s3a.{k} {v}\n" for k, v in settings.items()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))


def _fill(db: Any) -> None:
    """Rows in tables with keys, in one that goes to several by its ``region``, and in one whose events are kept."""
    db.sql(
        "CREATE TABLE `o``r'ders` (id INT PRIMARY KEY, note VARCHAR(40), price DECIMAL(9,2), at DATETIME(6))",
        "CREATE TABLE parts (code VARCHAR(20) PRIMARY KEY, n INT)",
        "INSERT INTO `o``r'ders` VALUES " + ", ".join(f"({i}, 'n{i}', {i} / 3, NOW(6))" for i in range(1, 301)),
        "INSERT INTO parts VALUES " + ", ".join(f"('k{i}', {i})" for i in range(1, 51)),
        "CREATE TABLE `lines` (id INT PRIMARY KEY, region VARCHAR(20))",
        "INSERT INTO `lines` VALUES (1, 'eu'), (2, 'it''s'), (3, 'eu'), (4, NULL)",
        "CREATE TABLE audit (id INT PRIMARY KEY, what VARCHAR(20))",
        "INSERT INTO audit VALUES (1, 'x')",
    )


def test_a_damaged_table_is_found_and_repaired_and_another_is_built_again(
    mariadb: Any, s3: S3, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    with mariadb.database("verified") as db:
        _fill(db)
        route = {"by": "region", "location": f"{tmp_path}/lake/lines of {{value}}"}
        rules = TableRules.parse([{"tables": r".*\.audit", "mode": "log"}, {"tables": r".*\.lines", "route": route}])
        shop = FollowedMariaDb(
            mariadb, db, spark, monkeypatch, tmp_path, location="lake/{topic}", tables=rules, properties={"database.server.id": 4322}
        )  # fmt: skip
        shop.follow()
        orders, parts = (f"delta.`{tmp_path}/lake/shop.{db.name}.{t}`" for t in ("o_r_ders", "parts"))
        spark.sql(f"DELETE FROM {orders} WHERE id IN (7, 8)")
        spark.sql(f"UPDATE {orders} SET price = 0 WHERE id BETWEEN 200 AND 205")
        spark.sql(f"INSERT INTO {orders} (id, note) VALUES (1000, 'x')")
        spark.sql(f"DELETE FROM {parts} WHERE code = 'k1'")
        spark.sql(f"INSERT INTO {parts} VALUES ('K2x', 1)")
        spark.sql(f"UPDATE delta.`{tmp_path}/lake/lines of eu` SET id = 2 WHERE id = 1")  # of the other table
        jars = ("--jars", ",".join(map(str, ensure("delta"))), "-o", "json")
        status, text = _run(capfd, "verify", "shop", "--repair", *jars)
        assert status == 1
        found = json.loads(text)
        differ = [t for t in found["tables"] if not t["equal"]]
        counts = {t["name"] or t["topic"]: (t["missing"], t["surplus"], t["different"]) for t in differ}
        eu = f"shop.{db.name}.lines → {tmp_path}/lake/lines of eu"
        assert counts == {
            f"shop.{db.name}.o_r_ders": (2, 1, 6), f"shop.{db.name}.parts": (1, 1, 0), eu: (1, 1, 0),
            f"shop.{db.name}.audit": (0, 0, 0),
        }  # fmt: skip
        assert sum("was sent: " in line for line in found["repairs"]) == 3
        assert not list((tmp_path / "changelog" / ".verify").iterdir())

        shop.follow()
        assert {row.state for row in shop.store.signals_of("shop", 10)} == {"done"}
        # the rows of the source in an object store meanwhile
        scratch = s3.bucket("scratch")
        _set_s3_environment(s3, monkeypatch, tmp_path / "conf")
        more = ",".join(map(str, ensure("delta", "s3")))
        there = ("--scratch", f"{scratch.replace('s3:', 's3a:')}/it's", "--jars", more)
        left = ChangeLog(f"{scratch}/it's/20260101T000000-abcdef").storage
        left.replace(left.join_path("shop", "part"), b"of a comparison that was killed")
        status, text = _run(capfd, "verify", "shop", *there, "-o", "json")
        assert status == 0, text
        found = json.loads(text)["tables"]
        assert {t["topic"] for t in found if not t["equal"]} == {t["topic"] for t in found if t["never"]}
        assert sorted(t["source"] for t in found) == [0, 1, 1, 2, 50, 300]
        status, _ = _run(capfd, "verify", "shop", "--tables", rf"{db.name}\.audit", "-o", "json")
        assert status == 2  # a user that names it wants it compared
        assert "Contents" not in s3.connect().list_objects_v2(Bucket="scratch")

        spark.sql(f"DELETE FROM {parts}")
        status, text = _run(capfd, "rebuild", "shop", f"{db.name}.parts", *jars)
        assert status == 0
        assert [t["topic"] for t in json.loads(text)["tables"]] == [f"shop.{db.name}.parts"]
        assert spark.read.format("delta").load(f"{tmp_path}/lake/shop.{db.name}.parts").count() == 50
    shop.store.close()
