"""Commands on pages: each is of a kind that some test runs or reads.

``airflow cdc`` is run by ``test_page_commands_run.py``, page by page. What belongs to other products is read as far as they are here, or is listed with a reason.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import re
import sys
import tomllib
from collections.abc import Callable

import pytest

from airflow_provider_cdc.channels.signal_parser import read_message
from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.signals.signal_request_parser import parse_request
from airflow_provider_cdc.dag import ad_hoc_snapshot_dag
from dev import matrix, paths
from dev.servers import __main__ as server_command
from tests.support.docs.page_commands import (
    PROGRAMS,
    SHELL,
    Command,
    list_blocks,
    list_commands,
    list_misplaced_commands,
    list_pages,
    split_commands,
    split_words,
)

COMMANDS = [command for page in list_pages() for command in list_commands(page) if command.text != "airflow cdc"]
OTHERS = {
    r"asncap capture_schema=\S+ capture_server=\S+ &": "the capture agent of Db2: the test server has one of its own (dev/servers/db2)",
    r"cd [\w/]+|git clone …": "before the repository is there",
    r"curl .*": "test_addresses_of_curl_are_served",
    r"db2 (update db cfg|backup db|restart db|-tvmf) .*": "the command line of Db2: no Db2 is available",
    r"docker build -f deploy/Dockerfile .*": "tests/dev/test_deploy.py",
    r"echo '.*": "test_lines_of_a_signal_file_are_signals",
    r"helm upgrade --install airflow .*|kubectl apply -f deploy/.*": "tests/dev/test_deploy.py",
}
"""Commands of other products → the reason why none is run here, or the test that has their files."""
CORE_OF_FAB = ("roles",)
"""Commands that Airflow has with the provider of its FAB auth manager."""
PARSED: list[tuple[str, Callable[[Command], None]]] = []
"""Patterns of commands, and the functions that read them."""
JOBS = {
    "apply_changes": ("apply_arguments", "parse_arguments"),
    "verify_tables": ("verify_arguments", "parse_arguments"),
    **{name: (name, "_arguments") for name in ("apply_connectors", "apply_to_database", "maintain_tables", "rebuild_tables")},
}  # fmt: skip
"""Script of ``spark_jobs`` → the module and the function that read its arguments."""


def reads(pattern: str) -> Callable[[Callable[[Command], None]], Callable[[Command], None]]:
    """Enter a function that reads the commands of a pattern."""

    def enter(function: Callable[[Command], None]) -> Callable[[Command], None]:
        PARSED.append((pattern, function))
        return function

    return enter


@reads(r"airflow-cdc .*|airflow cdc .*|kubectl exec \S+ -- airflow cdc .*")
def _is_run(command: Command) -> None:
    """``test_page_commands_run.py`` runs these, and says which tests run the others."""


@reads(r"airflow (?!cdc).*")
def _is_taken_by_airflow(command: Command) -> None:
    words = split_words(command.text)[1:]
    if words[0] not in CORE_OF_FAB and (command.whole or len(words) > 2):
        arguments = _airflow_parser().parse_args(words)
        if getattr(arguments, "conn_extra", None):
            assert json.loads(arguments.conn_extra)
    elif words[0] not in CORE_OF_FAB:
        group = next(a for a in _airflow_parser()._actions if isinstance(a, argparse._SubParsersAction))
        below = [a for a in group.choices[words[0]]._actions if isinstance(a, argparse._SubParsersAction)]
        assert not below or words[1] in below[0].choices, command


@reads(r"python3? .*")
def _is_a_module(command: Command) -> None:
    words = split_words(command.text)
    if words[1] == "-m":
        assert importlib.util.find_spec(words[2]) or words[2] == "build", command
    else:
        assert words[1] == "-c"
        compile(words[2], command.page, "exec")


@reads(r"source \S+/activate|export [A-Z].*|rm .*")
def _is_of_the_shell(command: Command) -> None:
    name, _, value = command.text.removeprefix("export ").partition("=")
    if "AIRFLOW_CONN_" in name:
        assert json.loads(split_words(command.text)[1].partition("=")[2])
    elif "DB_MANAGERS" in name:
        module, _, member = value.rpartition(".")
        assert hasattr(importlib.import_module(module), member)


@reads(r"pip install .*")
def _names_extras_of_ours(command: Command) -> None:
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"airflow-provider-cdc\[([^\]]*)\]", command.text):
        assert {*extras.split(",")} <= {*project["optional-dependencies"]}, command


@reads(r"dev/\w+( .*)?")
def _is_taken_by_our_tools(command: Command) -> None:
    program, *words = split_words(command.text)
    assert (paths.ROOT / program).exists(), command
    if words[:1] == ["--matrix"]:
        assert words[1] in {row.kind for row in matrix.read_plan()}, command
    elif program == "dev/test":
        paths_ = [word for word in words if word.startswith("tests/") and "notebook" not in word]
        assert [path for path in paths_ if not (paths.ROOT / path).exists()] == [], command
    elif program == "dev/server":
        assert words[0] in server_command.KINDS, command
    elif program in ("dev/bench", "dev/demo") and words[:1] != ["--spark"]:
        module = importlib.import_module(
            {"dev/bench": "dev.benchmarks.__main__", "dev/demo": "dev.demonstration.__main__"}[program]
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [program, *words])
            module._arguments()


@reads(r"spark-submit .*")
def _is_taken_by_the_job(command: Command) -> None:
    words = split_words(command.text)
    script = next(n for n, word in enumerate(words) if word.endswith(".py"))
    name = words[script].removesuffix(".py")
    assert (paths.ROOT / "spark_jobs" / f"{name}.py").exists()
    module, function = JOBS[name]
    with pytest.MonkeyPatch.context() as patch:
        made: list[argparse.ArgumentParser] = []
        patch.setattr(argparse.ArgumentParser, "parse_args", lambda self, *_: made.append(self) or argparse.Namespace())
        arguments = [words[script + 1 :]] if function == "_arguments" else [words[script + 1 :], ""]
        with contextlib.suppress(AttributeError):  # it reads arguments that were not parsed
            getattr(importlib.import_module(f"airflow_provider_cdc.targets.lake.jobs.{module}"), function)(*arguments)
    options = {word for word in words[script + 1 :] if word.startswith("--")}
    assert options <= {*made[0]._option_string_actions}, command


def _airflow_parser() -> argparse.ArgumentParser:
    from airflow.cli.cli_parser import get_parser

    return get_parser()


def test_commands_stand_in_blocks_of_a_shell() -> None:
    assert [line for page in list_pages() for line in list_misplaced_commands(page)] == []


def test_each_command_in_a_block_is_of_a_known_program() -> None:
    lines = [c for p in list_pages() for b in list_blocks(p) if b.language in SHELL for c in split_commands(b)]
    assert len(lines) > 100
    assert [line for line in lines if not PROGRAMS.fullmatch(line.program)] == []


@pytest.mark.parametrize(
    "command",
    {c.text: c for c in COMMANDS if not c.text.startswith("airflow cdc ")}.values(),
    ids=lambda c: c.text[:60],
)
def test_a_command_is_one_that_its_program_takes(command: Command) -> None:
    reader = next((function for pattern, function in PARSED if re.fullmatch(pattern, command.text, re.S)), None)
    if reader is not None:
        reader(command)
    else:
        assert any(re.fullmatch(pattern, command.text, re.S) for pattern in OTHERS), f"no test knows {command}"


def test_each_exception_is_of_a_command_on_a_page() -> None:
    texts = {command.text for command in COMMANDS}
    assert [one for one in OTHERS if not any(re.fullmatch(one, text, re.S) for text in texts)] == []


def test_addresses_of_curl_are_served() -> None:
    served = json.loads((paths.ROOT / "airflow_provider_cdc/plugins/ui/openapi.json").read_text())["paths"]
    texts = [command.text for command in COMMANDS if command.program == "curl"]
    ours = {found for text in texts for found in re.findall(r"https://[^/]+/cdc(/\S+)", text)}
    assert ours <= {*served}
    assert ours
    (form,) = (split_words(text) for text in texts if "/api/v2/dags/cdc_ad_hoc_snapshot/dagRuns" in text)
    conf = json.loads(form[form.index("-d") + 1])["conf"]
    assert {*conf} <= {*ad_hoc_snapshot_dag(["shop"]).params}


def test_lines_of_a_signal_file_are_signals() -> None:
    lines = [split_words(command.text)[1].removeprefix("shop|") for command in COMMANDS if command.program == "echo"]
    assert len(lines) == 3
    for line in lines:
        sent = read_message(line, channel="file", where="line 1", origin="1")
        assert parse_request(Signal(1, sent.id, sent.type, sent.data, sent.channel)), line
