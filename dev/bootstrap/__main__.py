"""``dev/setup``: everything a working copy needs, in steps that are skipped when there is nothing to do."""

import argparse
import sys
import time

from dev.bootstrap import databases, jars, java, ui, uv, venv
from dev.bootstrap.report import Problem, Report

DEFAULT_SERVERS = ("mariadb",)
DEFAULT_JARS = ("delta", "iceberg")


def main() -> int:
    """Run the steps; a problem ends the run with a message and exit code 1."""
    options = _arguments()
    started = time.monotonic()
    report = Report(5 + len(options.servers))
    try:
        with report.step("uv") as step:
            uv_binary = uv.ensure(step)
        with report.step("Python packages") as step:
            venv.ensure(uv_binary, step)
        with report.step("Pages") as step:
            ui.ensure(uv_binary, step)
        with report.step("Java") as step:
            java.ensure(step)
        with report.step("Spark jars") as step:
            jars.ensure(*options.jars, step=step)
        for name in options.servers:
            with report.step(databases.SERVERS[name].title) as step:
                databases.ensure(name, step)
    except Problem as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"Ready in {time.monotonic() - started:.1f} s. Next: dev/test, or dev/server mariadb for a database to try.")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dev/setup",
        description="Prepare this working copy: Python packages, the built pages, Java, Spark jars, a MariaDB server. Can be repeated.",
        epilog="Environment: CDC_DEV_HOME (instead of .dev), CDC_MAVEN_REPO (a mirror of Maven Central), "
        "UV_DEFAULT_INDEX or PIP_INDEX_URL (a Python package index), CDC_DEV_SYSTEM_SERVERS=0 (private database "
        "servers only), CDC_DEV_CHROMIUM (a Chromium for the tests of pages), and the usual variables of proxies and certificates.",
    )
    servers = ",".join(databases.SERVERS)
    parser.add_argument(
        "--servers", metavar="NAME,…", default="", help=f"further database servers to fetch, of {servers}"
    )
    parser.add_argument(
        "--jars", metavar="GROUP,…", default="", help="further groups of dev/jars.toml to fetch, such as kafka"
    )
    options = parser.parse_args()
    options.servers = _merge_names(DEFAULT_SERVERS, options.servers)
    options.jars = _merge_names(DEFAULT_JARS, options.jars)
    if unknown := [name for name in options.servers if name not in databases.SERVERS]:
        parser.error(f"unknown server {', '.join(unknown)}; there are {servers}")
    return options


def _merge_names(defaults: tuple[str, ...], more: str) -> list[str]:
    return list(dict.fromkeys([*defaults, *filter(None, (name.strip() for name in more.split(",")))]))


if __name__ == "__main__":
    sys.exit(main())
