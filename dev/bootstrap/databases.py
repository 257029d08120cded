"""The programs of the database servers: where they are, and how they get there when they are missing."""

import os
import platform
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dev import paths
from dev.bootstrap import apt, jars
from dev.bootstrap.report import Problem, Step

MACHINE = platform.machine()
TRIPLET = f"{MACHINE}-linux-gnu"
POSTGRES_MAJORS = ("14", "16", "17", "18")
"""Versions that are fetched beside the system's own."""
SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])


@dataclass(frozen=True)
class Installation:
    """An installed server program, and the options to run it."""

    command: tuple[str, ...]
    """The program, with its own loader before it when it brings its own libc."""
    version: str
    share: Path
    """The folder of its messages, character sets and SQL files."""
    arguments: tuple[str, ...] = ()
    """Options that tell it where its own files are."""
    environment: dict[str, str] = field(default_factory=dict)


def use_system_servers() -> bool:
    """``CDC_DEV_SYSTEM_SERVERS=0`` makes set-up and tests use private copies only."""
    return os.environ.get("CDC_DEV_SYSTEM_SERVERS", "1") != "0"


def find(name: str) -> Installation | None:
    """The server ``name`` if it is on this machine and runs."""
    found = SERVERS[name].find()
    return found if found and found.version else None


def ensure(name: str, step: Step | None = None) -> Installation:
    """The server ``name``, fetched now if it is not there yet; a :class:`Problem` if that is impossible."""
    step = step or Step(quiet=True)
    with paths.hold_lock(name):
        found = find(name)
        if not found:
            SERVERS[name].fetch(step)
            found = find(name)
    if not found:
        raise Problem(f"{name} was fetched, but its program is not where it was expected or does not run")
    place = "in .dev/opt" if paths.OPT in Path(found.command[-1]).parents else f"at {found.command[-1]}"
    step.done(f"{found.version} {place}")
    return found


@dataclass(frozen=True)
class Server:
    """A kind of server, and the functions that find and fetch it."""

    title: str
    find: Callable[[], Installation | None]
    fetch: Callable[[Step], None]


# MariaDB and MySQL 9.7: the system's, or packages unpacked into a folder


def _find_mariadb() -> Installation | None:
    found = shutil.which("mariadbd", path=SYSTEM_PATH) if use_system_servers() else None
    if found:
        prefix = Path(found).resolve().parents[1]
        share = _first_existing(prefix / "share" / "mariadb", prefix / "share" / "mysql")
        return Installation((found,), _version([found]), share)
    return _find_unpacked(paths.OPT / "mariadb", "mariadbd")


def _fetch_mariadb(step: Step) -> None:
    packages = [
        "mariadb-server-core",
        "mariadb-client-core",
    ]  # the programs alone: no service, no system user, no data folder
    if apt.may_install() and use_system_servers():
        apt.install(packages, step)
    else:
        apt.unpack(packages, paths.OPT / "mariadb", step)


def _find_mariadb118() -> Installation | None:
    return _find_unpacked(paths.OPT / "mariadb118", "mariadbd")


def _fetch_mariadb118(step: Step) -> None:
    apt.unpack(["mariadb-server-core", "mariadb-client-core", "libc6"], paths.OPT / "mariadb118", step, suite="trixie")


def _find_mysql97() -> Installation | None:
    return _find_unpacked(paths.OPT / "mysql97", "mysqld")


def _fetch_mysql97(step: Step) -> None:
    """The version moves with Debian's unstable suite: what is there today may be newer than 9.7, or gone."""
    apt.unpack(["mysql-server-core", "mysql-client-core", "libc6"], paths.OPT / "mysql97", step, suite="sid")


def _find_unpacked(root: Path, program: str) -> Installation | None:
    """A server in a folder of unpacked Debian packages."""
    binary = root / "usr" / "sbin" / program
    if not binary.exists():
        return None
    command, environment = _runnable(root, binary)
    share = _first_existing(root / "usr" / "share" / "mariadb", root / "usr" / "share" / "mysql")
    arguments = (
        f"--basedir={root / 'usr'}",
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
        f"--plugin-dir={root / 'usr' / 'lib' / 'mysql' / 'plugin'}",
    )
    return Installation(command, _version(command, environment), share, arguments, environment)


def _runnable(root: Path, binary: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Run a program with the libraries unpacked beside it, and with their libc when that is among them."""
    folders = [folder for folder in (root / "usr" / "lib" / TRIPLET, root / "lib" / TRIPLET) if folder.exists()]
    library_path = os.pathsep.join(map(str, folders))
    for folder in folders:
        for loader in sorted(folder.glob("ld-linux*.so*")):
            return (str(loader), "--library-path", library_path, str(binary)), {}
    return (str(binary),), {"LD_LIBRARY_PATH": library_path}


# MySQL 8.0.15: a tarball inside a jar


def _mysql80_root() -> Path:
    return paths.OPT / "mysql80"


def _find_mysql80() -> Installation | None:
    root = _mysql80_root()
    binary = root / "bin" / "mysqld"
    if not binary.exists():
        return None
    environment = {"LD_LIBRARY_PATH": str(root / "extra")}
    arguments = (
        f"--basedir={root}",
        f"--lc-messages-dir={root / 'share'}",
        f"--character-sets-dir={root / 'share' / 'charsets'}",
    )
    return Installation((str(binary),), _version([str(binary)], environment), root / "share", arguments, environment)


def _fetch_mysql80(step: Step) -> None:
    if MACHINE != "x86_64":
        raise Problem(f"MySQL 8.0.15 exists as a ready program for x86_64 only, this machine is {MACHINE}")
    root = _mysql80_root()
    part = root.with_name(".mysql80-part")
    shutil.rmtree(part, ignore_errors=True)
    (jar,) = jars.ensure("mysql80", step=step, folder=part)
    with (
        zipfile.ZipFile(jar) as archive,
        archive.open("mysql-Linux-amd64.tar.gz") as stream,
        tarfile.open(fileobj=stream, mode="r:gz") as tar,
    ):
        if hasattr(tarfile, "data_filter"):  # not in the first releases of Python 3.11
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(part)
    jar.unlink()
    if not _version([str(part / "bin" / "mysqld")]):
        _add_libaio(part, step)
    shutil.rmtree(root, ignore_errors=True)
    part.rename(root)


def _add_libaio(root: Path, step: Step) -> None:
    """The program needs a library that not every system has; newer Debian even knows it under another name."""
    unpacked = root / "libaio"
    apt.unpack(["libaio1"], unpacked, step, suite="bookworm")
    extra = root / "extra"
    extra.mkdir()
    for library in unpacked.rglob("libaio.so*"):
        shutil.copy2(library, extra / library.name)
    shutil.rmtree(unpacked)


# PostgreSQL


def _find_postgres() -> Installation | None:
    roots = [Path("/usr/lib/postgresql")] if use_system_servers() else []
    roots.append(paths.OPT / "postgres" / "usr" / "lib" / "postgresql")
    for root in roots:
        for folder in sorted(root.glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True):
            if (folder / "initdb").exists():
                binary = folder / "postgres"
                _, environment = (
                    ((), {}) if root == Path("/usr/lib/postgresql") else _runnable(paths.OPT / "postgres", binary)
                )
                return Installation(
                    (str(binary),), _version([str(binary)], environment), folder, environment=environment
                )
    return None


def _fetch_postgres(step: Step) -> None:
    if apt.may_install() and use_system_servers():
        apt.install(["postgresql"], step)
    else:
        apt.unpack(["postgresql"], paths.OPT / "postgres", step)


# PostgreSQL of other major versions: a tarball inside a jar, with the libraries that it needs


def _find_postgres_of(major: str) -> Installation | None:
    root = paths.OPT / f"postgres{major}"
    binary = root / "bin" / "postgres"
    if not binary.exists():
        return None
    environment = {"LD_LIBRARY_PATH": str(root / "lib")}
    return Installation((str(binary),), _version([str(binary)], environment), root / "bin", environment=environment)


def _fetch_postgres_of(major: str, step: Step) -> None:
    if MACHINE != "x86_64":
        raise Problem(f"PostgreSQL {major} is fetched as a ready program for x86_64 only, this machine is {MACHINE}")
    root = paths.OPT / f"postgres{major}"
    part = root.with_name(f".postgres{major}-part")
    shutil.rmtree(part, ignore_errors=True)
    (jar,) = jars.ensure(f"postgres{major}", step=step, folder=part)
    with (
        zipfile.ZipFile(jar) as archive,
        archive.open("postgres-linux-x86_64.txz") as stream,
        tarfile.open(fileobj=stream, mode="r:xz") as tar,
    ):
        if hasattr(tarfile, "data_filter"):  # not in the first releases of Python 3.11
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(part)
    jar.unlink()
    shutil.rmtree(root, ignore_errors=True)
    part.rename(root)


# Kafka: jars alone, run by the Java that Spark runs on


def _find_kafka() -> Installation | None:
    root = paths.OPT / "kafka"
    needed = [root / jar.file_name for jar in jars.list_jars("kafka")]
    if not all(jar.exists() for jar in needed):
        return None
    (broker,) = (jar for jar in needed if jar.name.startswith("kafka_"))
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    options = ("-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{root}/*")
    return Installation((java, *options), broker.stem.rpartition("-")[2], root)


def _fetch_kafka(step: Step) -> None:
    jars.ensure("kafka", step=step, folder=paths.OPT / "kafka")


# OpenSSH's server: unpacked, as the package of the system would start a service and make a user


def _sshd_root() -> Path:
    return paths.OPT / "sshd"


def _find_sshd() -> Installation | None:
    binary = _sshd_root() / "usr" / "sbin" / "sshd"
    if not binary.exists():
        return None
    _, environment = _runnable(_sshd_root(), binary)
    # since 9.8, the server starts programs for sessions, which are not at the path that it knows
    helpers = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
    folder = _sshd_root() / "usr" / "lib" / "openssh"
    arguments = [f"-o{option}={folder / name}" for option, name in helpers.items() if (folder / name).exists()]
    command = [str(binary), "-V"]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    version = re.search(r"OpenSSH_(\d+\.\d+)", result.stderr + result.stdout)
    return Installation((str(binary),), version[1] if version else "", folder, tuple(arguments), environment)


def _fetch_sshd(step: Step) -> None:
    apt.unpack(["openssh-server"], _sshd_root(), step)


SERVERS = {
    "mariadb": Server("MariaDB", _find_mariadb, _fetch_mariadb),
    "mariadb118": Server("MariaDB 11.8", _find_mariadb118, _fetch_mariadb118),
    "mysql97": Server("MySQL 9.7", _find_mysql97, _fetch_mysql97),
    "mysql80": Server("MySQL 8.0", _find_mysql80, _fetch_mysql80),
    "postgres": Server("PostgreSQL", _find_postgres, _fetch_postgres),
    **{
        f"postgres{major}": Server(
            f"PostgreSQL {major}", partial(_find_postgres_of, major), partial(_fetch_postgres_of, major)
        )
        for major in POSTGRES_MAJORS
    },
    "kafka": Server("Kafka", _find_kafka, _fetch_kafka),
    "sshd": Server("OpenSSH server", _find_sshd, _fetch_sshd),
}


def _version(command: list[str] | tuple[str, ...], environment: dict[str, str] | None = None) -> str:
    """Return the version that ``--version`` prints; empty when the program does not run."""
    try:
        arguments = [*command, "--version"]
        result = subprocess.run(
            arguments, capture_output=True, text=True, timeout=60, env={**os.environ, **(environment or {})}
        )
    except OSError:
        return ""
    match = re.search(r"\d+\.\d+(?:\.\d+)?", result.stdout)
    return match[0] if match and result.returncode == 0 else ""


def _first_existing(*folders: Path) -> Path:
    return next((folder for folder in folders if folder.exists()), folders[-1])
