"""Pages of the reference from the code: ``python -m dev.reference`` writes them.

A page has text by hand before its first marker and after its last one. Everything between the markers is written here.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dev import paths
from dev.properties import replace_block

REFERENCE = paths.ROOT / "docs" / "reference"
METHODS = {
    "CdcStateHook": ("get_conn", "open_store", "test_connection"),
    "CdcSourceHook": ("check_prerequisites", "inspect_source", "test_connection"),
}
"""Public methods of classes that the page about Python shows."""
_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_FAMILY = re.compile(r"((?:signal\.)?consumer\.(?:sasl|ssl))\.")
_CLIENTS = "login and TLS of a Kafka client, by the names of librdkafka or of Debezium"
_GRANTS = re.compile(r"^( *)<!-- grants (\w+): ([^>]+) begins -->\n.*?^ *<!-- grants ends -->", re.M | re.S)
_CLASSES = re.compile(r"^<!-- class ([\w.]+) begins -->\n.*?^<!-- class ends -->", re.M | re.S)
_FIELD = re.compile(r"^:(param|raises) ([\w*]+):\s*")


def write_markdown(docstring: str) -> str:
    """Return a docstring as Markdown: parameters and errors as a list, examples as they are typed."""
    text = _ROLE.sub(lambda found: f"`{found[1].rpartition('.')[2]}`", inspect.cleandoc(docstring)).replace("``", "`")
    paragraphs, fields, example = [""], [], []
    for line in text.splitlines():
        if example and not line.strip():
            paragraphs += [_fence(example), ""]
            example = []
        elif example or line.strip().startswith(">>>"):
            example.append(line)
        elif field := _FIELD.match(line):
            what = f"`{field[2]}`" if field[1] == "param" else f"raises `{field[2]}`"
            fields.append(f"- {what}: {line[field.end() :]}")
        elif fields and line.strip():
            fields[-1] += f" {line.strip()}"
        else:
            paragraphs[-1] += f"{line}\n"
    if example:
        paragraphs.append(_fence(example))
    parts = [part.strip("\n") for part in (*paragraphs, "\n".join(fields))]
    return "\n\n".join(part for part in parts if part)


def _fence(example: list[str]) -> str:
    return "```\n" + inspect.cleandoc("\n".join(example)) + "\n```"


def write_signature(name: str, obj: Callable[..., Any]) -> str:
    """Return a signature as a block of code, with an argument on each line."""
    lines = []
    signature = inspect.signature(obj)
    for argument in signature.parameters.values():
        if argument.name == "self":
            continue
        if argument.kind is argument.KEYWORD_ONLY and "    *," not in lines:
            lines.append("    *,")
        star = {argument.VAR_KEYWORD: "**", argument.VAR_POSITIONAL: "*"}.get(argument.kind, "")
        default = "" if argument.default is argument.empty else f" = {_default(argument.default)}"
        lines.append(f"    {star}{argument.name}: {_annotation(argument.annotation)}{default},")
    result = "" if inspect.isclass(obj) else f" -> {_annotation(signature.return_annotation)}"
    return "\n".join(["```", f"{name}(", *lines, f"){result}", "```"])


def _default(value: Any) -> str:
    text = repr(value)
    return "…" if text.startswith("<") else text


def _annotation(annotation: Any) -> str:
    return str(annotation).strip("'\"") if isinstance(annotation, str) else getattr(annotation, "__name__", "Any")


def _described(name: str, obj: Any) -> Iterator[str]:
    from airflow_provider_cdc import dag

    yield f"### {name}"
    yield f"`from {dag.__name__ if name in dag.__all__ else obj.__module__} import {name}`"
    yield write_signature(name, obj)
    yield write_markdown(obj.__doc__ or "")
    for method in METHODS.get(name, ()):
        function = getattr(obj, method)
        plain = inspect.unwrap(function)
        yield f"#### {name}.{method}"
        yield write_signature(method, plain)
        yield write_markdown(plain.__doc__ or inspect.getdoc(function) or "")


def python() -> dict[str, str]:
    """Return the blocks of the page about the Python API."""
    from airflow_provider_cdc import dag
    from airflow_provider_cdc.hooks.source import CdcSourceHook
    from airflow_provider_cdc.hooks.state import CdcStateHook
    from airflow_provider_cdc.notifications.connector_notifier import CdcNotifier
    from airflow_provider_cdc.services.dashboards.connector_alerts import (
        AlertLimits,
        find_alerts,
        format_alert,
        load_alerts,
    )
    from airflow_provider_cdc.services.dashboards.overview_models import ConnectorAlert

    others = {
        "alerts": (AlertLimits, load_alerts, find_alerts, ConnectorAlert, format_alert, CdcNotifier),
        "hooks": (CdcSourceHook, CdcStateHook),
    }
    public = [(name, getattr(dag, name)) for name in sorted(dag.__all__, key=str.lower)]
    blocks = {
        "definitions": [item for item in public if inspect.isclass(item[1])],
        "factories": [item for item in public if not inspect.isclass(item[1])],
    } | {title: [(obj.__name__, obj) for obj in found] for title, found in others.items()}
    return {
        title: "\n\n".join(part for name, obj in found for part in _described(name, obj))
        for title, found in blocks.items()
    }


def cli() -> dict[str, str]:
    """Return the blocks of the page about the command line."""
    from airflow.cli.cli_config import ActionCommand

    from airflow_provider_cdc.cli.command_parser import build_commands

    def listed(words: str, command: Any) -> Iterator[str]:
        if not isinstance(command, ActionCommand):
            for below in sorted(command.subcommands, key=lambda c: c.name):
                yield from listed(f"{words} {command.name}", below)
            return
        yield f"## `{words} {command.name}`"
        yield " ".join(
            _sentence(re.sub(r"'(airflow [^']*)'", r"`\1`", text))
            for text in (command.help, command.description)
            if text
        )
        rows = [
            f"| `{', '.join(argument.flags)}` | {_meaning(argument.kwargs)} |"
            for argument in command.args
            if argument.flags != ("-v", "--verbose")
        ]
        if rows:
            yield "\n".join(["| argument | meaning |", "| --- | --- |", *rows])

    (group,) = build_commands()
    return {"commands": "\n\n".join(listed("airflow", group))}


def _meaning(options: dict[str, Any]) -> str:
    text = str(options.get("help", "")).replace("|", "\\|") % {"default": options.get("default"), "prog": "airflow"}
    text = re.sub(r"'(airflow [^']*)'", r"`\1`", text)
    values = [str(value) for value in options.get("choices") or ()]
    named = f" ({', '.join(f'`{value}`' for value in values)})" if values and not all(v in text for v in values) else ""
    required = " **Required.**" if options.get("required") else ""
    return f"{text}{named}{required}"


def _sentence(text: str) -> str:
    return text.strip().rstrip(".") + "."


def connections() -> dict[str, str]:
    """Return the blocks of the page about connections."""
    from airflow_provider_cdc.sources import SOURCES, config_class

    parts = []
    for kind in sorted(set(SOURCES) - {"memory"}):
        config = config_class(kind)
        form, fields = config.FORM, config.CONNECTION
        rows = [
            f"| *{form.labels.get(field, field.capitalize())}* (`{field}`) | `{name}` |{_example(form.placeholders.get(field))} |"
            for field, name in fields.items()
        ]
        extras = {**form.extras, **config.list_login_extras()}
        aliases = {str(f.alias): f.description or "" for f in config.model_fields.values()}
        more = [n for n in config.connection_properties() if n not in extras and n not in fields.values()]
        single = [n for n in more if not _FAMILY.match(n)]
        families = sorted({f"{found[1]}.*" for n in more if (found := _FAMILY.match(n))})
        parts += [
            f"## CDC: {kind}",
            f"Connection type `cdc_{kind}`.",
            "\n".join(["| field | property | example |", "| --- | --- | --- |", *rows]),
            "In *Extra*:",
            "\n".join(
                [
                    "| name | in the form | meaning |",
                    "| --- | --- | --- |",
                    *(f"| `{n}` | yes | {_cell(text)} |" for n, text in extras.items()),
                    *(f"| `{n}` | | {_cell(aliases.get(n, ''))} |" for n in single),
                    *(f"| `{n}` | | {_CLIENTS} |" for n in families),
                ]
            ),
        ]
    return {"connections": "\n\n".join(parts)}


def _example(text: str | None) -> str:
    return f" `{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip()


def airflow_configuration() -> dict[str, str]:
    """Return the blocks of the page about the section ``[cdc]``."""
    from airflow_provider_cdc.get_provider_info import get_provider_info

    options = get_provider_info()["config"]["cdc"]["options"]
    rows = [
        f"| `{name}` | `AIRFLOW__CDC__{name.upper()}` | {_example(option['default']).strip()} | {_cell(option['description'].replace('``', '`'))} |"
        for name, option in sorted(options.items())
    ]
    return {
        "options": "\n".join(
            ["| option | environment variable | default | meaning |", "| --- | --- | --- | --- |", *rows]
        )
    }


def rest() -> dict[str, str]:
    """Return the blocks of the page about the REST API."""
    import json

    from dev.openapi import document

    described = json.loads(document())
    rows, parts = [], []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            about = operation.get("description", operation["summary"]).split("\n\n")[0].replace("\n", " ")
            names = [f"`{p['name']}`" for p in operation.get("parameters", ()) if p["in"] == "query"]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            taken = ", ".join([*names, *([f"a `{_model(body)}`"] if body else [])])
            rows.append(f"| `{method.upper()} /cdc{path}` | {_cell(about)} | {taken} |")
    parts.append("\n".join(["| request | result | query, body |", "| --- | --- | --- |", *rows]))
    return {"routes": "\n\n".join(parts)}


def _model(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", schema.get("title", "object"))).rpartition("/")[2]


def state_tables() -> dict[str, str]:
    """Return the blocks of the page about the state tables."""
    from airflow_provider_cdc.state import models

    parts = []
    classes = sorted(models.Base.__subclasses__(), key=lambda one: one.__tablename__)
    for row in classes:
        table = row.__table__
        lines = [
            f"| `{column.name}` | {_kind(column.type)}{'' if column.nullable else ', not null'} | {'yes' if column.primary_key else ''} |"
            for column in table.columns  # type: ignore[attr-defined]
        ]
        parts += [
            f"## {table.name}",  # type: ignore[attr-defined]
            write_markdown(row.__doc__ or ""),
            "\n".join(["| column | type | key |", "| --- | --- | --- |", *lines]),
        ]
    return {"tables": "\n\n".join(parts), "revision": f"The revision of this release is `{models.REVISION}`."}


def _kind(kind: Any) -> str:
    name = str(getattr(kind, "__visit_name__", kind)).lower()
    known = {"type_decorator": "timestamp", "big_integer": "64-bit integer", "string": "text", "text": "long text"}
    size = f" of {kind.length}" if getattr(kind, "length", None) else ""
    return known.get(name, name.upper() if name == "json" else name) + size


PAGES: dict[str, Callable[[], dict[str, str]]] = {
    "python.md": python,
    "cli.md": cli,
    "connections.md": connections,
    "airflow-configuration.md": airflow_configuration,
    "rest.md": rest,
    "state-tables.md": state_tables,
}


def write_page(name: str, text: str) -> str:
    """Return a page with its blocks as the code is now."""
    for block, content in PAGES[name]().items():
        text = replace_block(text, block, content)
    return text


def write_grants(text: str) -> str:
    """Return a page with its statements as the files of the sources have them.

    A marker names the kind of source and the section: ``<!-- grants mysql: account begins -->``.
    """
    from airflow_provider_cdc.sources.grants import read_grants

    def filled(found: re.Match[str]) -> str:
        indent, kind, section = found[1], found[2], found[3]
        fence = "js" if kind == "mongodb" else "sql"
        lines = [f"```{fence}", *read_grants(kind, section).splitlines(), "```"]
        block = "\n".join(f"{indent}{line}".rstrip() for line in lines)
        return f"{indent}<!-- grants {kind}: {section} begins -->\n{block}\n{indent}<!-- grants ends -->"

    return _GRANTS.sub(filled, text)


def write_classes(text: str) -> str:
    """Return a page with the signatures and docstrings of the classes that its markers name.

    A marker has the module and the name: ``<!-- class airflow_provider_cdc.operators.capture.CaptureOperator begins -->``.
    """

    def filled(found: re.Match[str]) -> str:
        module, _, name = found[1].rpartition(".")
        obj = getattr(importlib.import_module(module), name)
        parts = [f"`from {module} import {name}`", write_signature(name, obj), write_markdown(obj.__doc__ or "")]
        return f"<!-- class {found[1]} begins -->\n" + "\n\n".join(parts) + "\n<!-- class ends -->"

    return _CLASSES.sub(filled, text)


def list_pages_with_classes() -> list[Path]:
    """Return the pages that show a class."""
    return [page for page in sorted((paths.ROOT / "docs").rglob("*.md")) if _CLASSES.search(page.read_text())]


def list_pages_with_grants() -> list[Path]:
    """Return the pages that show grants."""
    return [page for page in sorted((paths.ROOT / "docs").rglob("*.md")) if _GRANTS.search(page.read_text())]


def main() -> int:
    for name in PAGES:
        page = Path(REFERENCE / name)
        page.write_text(write_page(name, page.read_text()))
    for page in list_pages_with_grants():
        page.write_text(write_grants(page.read_text()))
    for page in list_pages_with_classes():
        page.write_text(write_classes(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
