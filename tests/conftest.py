"""Fixtures and settings of all tests. A server starts when the first test asks for it and ends with the test run."""

import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from dev import paths  # noqa: E402
from dev.bootstrap.report import Problem  # noqa: E402
from dev.compatibility import collect_test_names  # noqa: E402
from dev.servers import S3, Database, Db2, Kafka, MariaDb, MySql, Postgres, Server, Sshd  # noqa: E402
from tests.support.processes.fork import Forks  # noqa: E402
from tests.support.pytest_runs import costs  # noqa: E402
from tests.support.pytest_runs.costs import CostMeasurement  # noqa: E402
from tests.support.pytest_runs.groups import group_of  # noqa: E402
from tests.support.pytest_runs.sampled import CaseSample  # noqa: E402
from tests.support.sources.db2.agent_stacks import read_agent_stacks  # noqa: E402

# the shared suite is no test module itself: its assertions are to be explained like those of one, in any order of imports
pytest.register_assert_rewrite("tests.sources.suite")

settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # a busy machine is no bug
settings.load_profile("tests")
# a worker inherits the folder of the process that has started it, where all workers would make their tables in one database
AIRFLOW_HOMES = Path(os.environ.get("CDC_TEST_AIRFLOW_HOMES") or paths.HOME / "airflow")
os.environ["AIRFLOW_HOME"] = str(AIRFLOW_HOMES / os.environ.get("PYTEST_XDIST_WORKER", "alone"))
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

# hundreds of short Spark jobs and brokers that live for seconds: the optimizing compiler costs a third and never pays. Without it Java
# keeps 48 MB for compiled code, which Spark fills in a minute, and then compiles again and again what it has thrown away.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m")

MEMORY, ROOM = Path("/dev/shm"), 6 << 30
"""Thousands of small databases and tables need not wait for a disk, where memory is plenty."""


def _plenty() -> bool:
    """Check whether temporary files have room in memory, and processes beside them."""
    known = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines()) if MEMORY.is_dir() else {}
    available = int(known.get("MemAvailable", "0 kB").split()[0]) << 10
    return available > 2 * ROOM and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM


if "TMPDIR" not in os.environ and _plenty():
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None  # it may have been asked already

AnyServer = TypeVar("AnyServer", bound=Server)

SERVER_FIXTURES = {
    "mariadb",
    "mariadb_factory",
    "database",
    "postgres",
    "postgres_factory",
    "s3",
    "kafka",
    "oracle",
    "schema",
    "db2",
    "db2_factory",
    "sshd_factory",
}
MYSQL_FIXTURES = {"mysql97", "mysql80", "mysql_factory"}
SLOWNESS = ("server", "mysql", "crash", "slow", "airflow", "spark")
COLLECTED = pytest.StashKey[set[str]]()
"""Names of all tests that were collected, the long ones too, without the parts in brackets."""


@pytest.fixture(scope="module", autouse=True)
def modules_stay_the_same() -> Iterator[None]:
    """A module that a test imports again is another one to modules that have it already: what later tests patch in one does not reach the other."""
    yield
    twice = []
    for name, module in list(sys.modules.items()):
        parent, _, child = name.rpartition(".")
        if name.startswith("airflow_provider_cdc.") and parent in sys.modules:
            found = getattr(sys.modules[parent], child, module)
            if isinstance(found, ModuleType) and found is not module:
                twice.append(name)
    assert twice == []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run what takes long and finds little, too")
    parser.addoption(
        "--all", action="store_true", help="run all costly tests, of which a run of all tests tries a 40th"
    )
    parser.addoption("--third", action="store_true", help="run a third of the costly tests")
    parser.addoption("--costs", action="store_true", help="write down which tests are costly: tests/costs.txt")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--costs"):
        config.pluginmanager.register(CostMeasurement())


@pytest.fixture(scope="session")
def sampled(request: pytest.FixtureRequest) -> CaseSample:
    """Return the sample of like cases that this run tries."""
    return CaseSample(long=bool(request.config.getoption("--long")))


def _forget_loggers_of_spark() -> None:
    """PySpark's loggers of errors write JSON, and make each handler that they are given write JSON. pytest gives its own handler to each
    logger that does not propagate, before each phase of a test: after one error of Spark, all later tests would see JSON in ``caplog``."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.Logger.manager.loggerDict.pop(name, None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None]:
    _forget_loggers_of_spark()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call() -> Generator[None]:
    _forget_loggers_of_spark()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None]:
    _forget_loggers_of_spark()
    return (yield)


# order: what is fast runs first, so that a failure shows early; with several workers what is slow does, so that all end together


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need a MySQL server, put what shares a worker in order, and leave the long ones out."""
    config.stash[COLLECTED] = {item.nodeid.partition("[")[0] for item in items}
    _without_long(config, items)
    for item in items:
        if MYSQL_FIXTURES & set(_fixtures(item)):
            item.add_marker("mysql")
    slowest: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for item in items:
        group = group_of(item.nodeid)
        slowest[group] = max(slowest[group], _slowness(item))
        size[group] += 1
    turn = -1 if hasattr(config, "workerinput") else 1

    def sort_key(item: pytest.Item) -> tuple[int, int, str, str, int]:
        group = group_of(item.nodeid)
        return turn * slowest[group], turn * size[group], group, item.nodeid.partition("::")[0], _slowness(item)

    items.sort(key=sort_key)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``: what shares something expensive shares a worker, too, and the slowest begin."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.support.pytest_runs.groups import GroupScheduling

    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def _without_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``long``, and most of what is ``sampled``, unless it was asked for by its name or with ``--long``."""
    named = any("::" in arg for arg in config.args)
    if named or config.getoption("--long"):
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("long"):
            mark, name = item.get_closest_marker("sampled"), item.nodeid.partition("[")[0]
            among = mark.kwargs.get("among") if mark else None
            cases.setdefault(f"{among}: {name.rpartition('::')[2]}" if among else name, []).append(item)
    tried: set[pytest.Item] = set()
    for name, alike in cases.items():
        mark = alike[0].get_closest_marker("sampled")
        numbers = CaseSample(long=False).cases(name, len(alike), mark.args[0]) if mark else range(len(alike))
        tried.update(alike[number] for number in numbers)
    if is_whole_run(config) and not config.getoption("--all") and not config.getoption("--costs"):
        skipped = costs.left_out(
            {costs.name_of(item.nodeid) for item in items},
            CaseSample(long=False),
            3 if config.getoption("--third") else costs.TURNS,
        )
        tried = {item for item in tried if costs.name_of(item.nodeid) not in skipped}
    if left_out := [item for item in items if item not in tried]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item in tried]


def is_whole_run(config: pytest.Config) -> bool:
    """Check whether this is a run of all tests."""
    return [Path(arg).resolve() for arg in config.args] == [ROOT / "tests"]


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def _slowness(item: pytest.Item) -> int:
    marks = {mark.name for mark in item.iter_markers()}
    if SERVER_FIXTURES & set(_fixtures(item)):
        marks.add("server")
    return max((SLOWNESS.index(mark) + 1 for mark in marks if mark in SLOWNESS), default=0)


@pytest.fixture(scope="session")
def every_test(request: pytest.FixtureRequest) -> set[str]:
    """Names of all tests of the project, without the parts in brackets. A run of all of them has collected them already."""
    if is_whole_run(request.config):
        return request.config.stash[COLLECTED]
    return collect_test_names()


# servers


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """The MariaDB that all tests share. Tests that stop it or change its settings take ``mariadb_factory`` instead."""
    with _start_server(MariaDb()) as server:
        yield server


@pytest.fixture(scope="module")
def mariadb_factory() -> Iterator[Callable[..., MariaDb]]:
    """Starts a MariaDB of one's own: ``with mariadb_factory(binlog_row_image="MINIMAL") as server``.

    Without ``with`` it runs until the end of the module. ``edition="11.8"`` starts the newer one.
    """
    with _Started() as started:
        yield lambda edition=None, **options: started.add(MariaDb(options, edition=edition))


@pytest.fixture(scope="session")
def mysql97() -> Iterator[MySql]:
    """The MySQL 9.7 that all tests share."""
    with _start_server(MySql(edition="9.7")) as server:
        yield server


@pytest.fixture(scope="session")
def mysql80() -> Iterator[MySql]:
    """The MySQL 8.0 that all tests share."""
    with _start_server(MySql(edition="8.0")) as server:
        yield server


@pytest.fixture(scope="module")
def mysql_factory() -> Iterator[Callable[..., MySql]]:
    """Starts a MySQL of one's own, as ``mariadb_factory`` does: ``mysql_factory("8.0", gtid_mode=False)``."""
    with _Started() as started:
        yield lambda edition="9.7", **options: started.add(MySql(options, edition=edition))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL that all tests share."""
    with _start_server(Postgres()) as server:
        yield server


@pytest.fixture(scope="module")
def postgres_factory() -> Iterator[Callable[..., Postgres]]:
    """Starts a PostgreSQL of one's own: ``with postgres_factory("17", max_slot_wal_keep_size="1MB") as server``."""
    with _Started() as started:
        yield lambda edition="", **options: started.add(Postgres(options, edition=edition))


@pytest.fixture(scope="module")
def sshd_factory() -> Iterator[Callable[..., Sshd]]:
    """Starts an SSH server of one's own: ``sshd_factory(AllowTcpForwarding=False)``."""
    with _Started() as started:
        yield lambda **options: started.add(Sshd(options))


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """The S3 server that all tests share."""
    with _start_server(S3()) as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """The Kafka broker that all tests share."""
    with _start_server(Kafka()) as server:
        yield server


@pytest.fixture(scope="session")
def db2() -> Iterator[Db2]:
    """The Db2 test server that all tests share; it is ours, and no Db2."""
    with _start_server(Db2()) as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the stacks of the Db2 test server to a failure for which its agent stands still."""
    report = yield
    server = getattr(item, "funcargs", {}).get("db2")
    if report.failed and server is not None and (stacks := read_agent_stacks(server, report.longreprtext)):
        report.sections.append(("log of the Db2 test server", stacks))
    return report


@pytest.fixture
def db2_factory() -> Iterator[Callable[..., Db2]]:
    """Starts a Db2 test server of one's own: ``db2_factory(upd_to_del_ins=False)``."""
    with _Started() as started:
        yield lambda **options: started.add(Db2(options))


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[Database]:
    """A new database on the shared MariaDB (``name``, ``sql``, ``connect``, ``server``), dropped after the test."""
    with mariadb.database() as database:
        yield database


@pytest.fixture(scope="session")
def mysql_forks() -> Iterator[Forks]:
    """Runs captures of MariaDB and MySQL in processes of their own, which may be killed."""
    with Forks(
        "tests.support.processes.crash",
        "airflow_provider_cdc.sources.mysql.source",
        "airflow_provider_cdc.sources.mysql.snapshot.chunk_reader",
        "tests.support.processes.crash_mysql",
    ) as forks:
        yield forks


def _start_server(server: AnyServer) -> AnyServer:
    """Fetch and start a server; the test is skipped when it cannot be had on this machine."""
    try:
        return server.start()
    except Problem as problem:
        server.close()
        if os.environ.get("CDC_REQUIRE_SERVERS"):
            raise
        pytest.skip(f"{server!r} cannot be had here: {problem}")


class _Started:
    """Servers started on request, closed together."""

    def __init__(self) -> None:
        self._servers: list[Server] = []

    def __enter__(self) -> "_Started":
        return self

    def __exit__(self, *_: Any) -> None:
        for server in self._servers:
            server.close()

    def add(self, server: AnyServer) -> AnyServer:
        self._servers.append(server)
        return _start_server(server)
