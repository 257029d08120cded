"""DAGs of many connectors, each defined by a file.

:mod:`.definition_files` finds the file, :mod:`.definition_parser` reads it, :mod:`.definition_schema` defines its contents.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_parsing_context

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.dag.connector_dag import cdc_dag
from airflow_provider_cdc.dag.definition_files import LayeredDefinition, find_definition_files
from airflow_provider_cdc.dag.definition_parser import DefinitionFileError, DefinitionProblem
from airflow_provider_cdc.dag.definition_schema import ConnectorPart, DagDefinition, build_arguments, parse_definition
from airflow_provider_cdc.operators.broken_definition import BrokenDefinitionOperator
from airflow_provider_cdc.sources import config_class

log = logging.getLogger(__name__)

BROKEN = "cdc-broken"
"""The tag of DAGs whose definitions cannot be used."""
BROKEN_EVERY = timedelta(hours=1)
"""How often the DAG of a broken definition fails, until it is corrected."""
_NOT_IN_IDS = re.compile(r"[^\w.-]")
_LONGEST_ID = 250
_SHOWN = 5
"""Files that are named where several have the same mistake."""


@dataclass(frozen=True, slots=True)
class ConnectorDags:
    """The result of :func:`cdc_dags`.

    :param dags: DAGs by their ids, also those that stand for broken definitions. While a task runs, only the one that it belongs to
    :param connectors: those that can be used, for :func:`~airflow_provider_cdc.dag.lifecycle_dag.lifecycle_dag` and the like
    :param broken: files that cannot be used, relative to the directory, with their errors
    """

    dags: dict[str, DAG] = field(default_factory=dict)
    connectors: list[ConnectorDefinition] = field(default_factory=list)
    broken: dict[str, ConfigError] = field(default_factory=dict)


@dataclass(slots=True)
class _DefinitionFile:
    """A file on its way to a DAG.

    :param stack: the file, over its defaults
    :param name: relative to the directory
    :param dag_id: of its DAG; built from the file's name, if the file has none
    :param error: its error, if it has one
    """

    stack: LayeredDefinition
    name: str
    dag_id: str
    definition: DagDefinition | None = None
    connector: ConnectorDefinition | None = None
    error: ConfigError | None = None


def cdc_dags(directory: str | Path, *, default_args: Mapping[str, Any] | None = None) -> ConnectorDags:
    """Build a DAG for each file (``.yaml``, ``.yml``, ``.json``) in a directory and below. Airflow finds them by itself.

        >>> fleet = cdc_dags(Path(__file__).parent / "fleet", default_args={"on_failure_callback": page_somebody})

    A file has the arguments of :class:`~airflow_provider_cdc.connector.ConnectorDefinition` and :func:`~airflow_provider_cdc.dag.connector_dag.cdc_dag`, by
    the same names. ``_defaults.yaml`` has the values of all files in its folder and below: mappings are joined, everything else is replaced.
    docs/platforms/airflow.md has the whole.

    A file that cannot be used breaks only itself: its DAG has one task then, which fails with the error, once an hour. An error of the
    import would not do, as Airflow stops all DAGs of a Python file that has one.

    :param directory: an absolute path, as Airflow's processes begin in different folders
    :param default_args: arguments of all tasks that only code can give: callbacks. The values of a file win
    :raises ConfigError: the directory is not there, or cannot be listed
    """
    folder, shared = Path(directory), dict(default_args or {})
    files = [_parsed(stack) for stack in _listed(folder)]
    _refuse_twice(files)
    context_dag_id, fleet = get_parsing_context().dag_id, ConnectorDags()
    for dag_id, of_it in _by_id(files).items():
        # a task's process needs its own DAG only
        if context_dag_id in (None, dag_id):
            fleet.dags[dag_id] = built_dag = _build_or_stub_dag(dag_id, of_it, shared)
            with built_dag:
                pass  # Airflow registers a DAG whose block was entered: no variable is needed
    for file in files:
        if file.error is not None:
            fleet.broken[file.name] = file.error
        elif file.connector is not None:
            fleet.connectors.append(file.connector)
    for text in dict.fromkeys(map(str, fleet.broken.values())):
        log.error("%s", text)
    return fleet


def _listed(folder: Path) -> list[LayeredDefinition]:
    if not folder.is_absolute():
        raise ConfigError(
            f"The path of the definitions directory is not absolute: {folder}.",
            safe="Airflow keeps the existing DAGs of this file.",
            remedy=f'write cdc_dags(Path(__file__).parent / "{folder}")',
        )
    try:
        return list(find_definition_files(folder))
    except OSError as e:
        raise ConfigError(
            f"The definitions directory cannot be listed: {folder} ({e.strerror or e}).",
            safe="Airflow keeps the existing DAGs of this file, but starts none of them. Offsets and tables are unchanged.",
            remedy="make the directory available to Airflow's DAG processor and its workers, or correct the path",
        ) from e


def _parsed(stack: LayeredDefinition) -> _DefinitionFile:
    """Read a file, and check its values."""
    file = _DefinitionFile(stack, stack.name, _fit(f"cdc_{stack.path.stem}"))
    try:
        values = stack.merge_values()
        file.dag_id = _stated_id(values) or file.dag_id
        definition, wrong = parse_definition(values)
        if definition is None:
            raise DefinitionFileError([stack.locate_problem(path, text) for path, text in wrong])
        connector = {name: getattr(definition, name) for name in ConnectorPart.model_fields}
        file.connector = ConnectorDefinition(**connector)
        dag_id = definition.dag_id or f"cdc_{definition.name}"
        if dag_id != _fit(dag_id):
            raise DefinitionFileError(
                [
                    stack.locate_problem(
                        ("dag_id",), "dag_id may contain letters, digits, _, . and -, at most 250 characters"
                    )
                ]
            )
        file.definition, file.dag_id = definition, dag_id
    except DefinitionFileError as e:
        file.error = _error(file.name, e.problems)
    except CdcError as e:
        file.error = _of_code(file.name, e)
    return file


def _stated_id(values: Mapping[str, Any]) -> str | None:
    """Return the id that a file gives, even if something else is wrong with it.

    People look for the error at the DAG that they know.
    """
    dag_id, name = values.get("dag_id"), values.get("name")
    if not isinstance(dag_id, str) and isinstance(name, str) and name:
        dag_id = f"cdc_{name}"
    return _fit(dag_id) if isinstance(dag_id, str) and dag_id else None


def _fit(dag_id: str) -> str:
    return _NOT_IN_IDS.sub("_", dag_id)[:_LONGEST_ID]


def _refuse_twice(files: Sequence[_DefinitionFile]) -> None:
    """Two captures of one name would take the source from each other, and of two DAGs of one id Airflow takes any."""
    by: dict[tuple[str, str], list[_DefinitionFile]] = defaultdict(list)
    for file in files:
        if file.definition is not None:
            by["connector", file.definition.name].append(file)
            by["DAG", file.dag_id].append(file)
    problems: dict[str, list[str]] = defaultdict(list)
    for (kind, name), same in by.items():
        if len(same) > 1:
            text = f"the {kind} {name} is defined more than once: in {_listing([file.name for file in same])}"
            for file in same:
                problems[file.name].append(text)
    together: dict[tuple[str, ...], list[_DefinitionFile]] = defaultdict(list)
    for file in files:
        if file.name in problems:
            together[tuple(problems[file.name])].append(file)
    for texts, same in together.items():
        error = _error(_listing([file.name for file in same]), [DefinitionProblem(None, None, text) for text in texts])
        for file in same:
            file.error = error


def _listing(names: Sequence[str]) -> str:
    """Names of files, of which there may be hundreds."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", " if more else " and ").join(names[:_SHOWN]) + more


def _by_id(files: Sequence[_DefinitionFile]) -> dict[str, list[_DefinitionFile]]:
    """Files by the DAG that they have. None that cannot be read takes the DAG of one that can."""
    by: dict[str, list[_DefinitionFile]] = {}
    for file in files:
        if file.definition is not None:
            by.setdefault(file.dag_id, []).append(file)
    for file in files:
        if file.definition is None:
            base_id, number = file.dag_id[: _LONGEST_ID - 20], 1
            while file.dag_id in by:
                file.dag_id, number = f"{base_id}_broken{number if number > 1 else ''}", number + 1
            by[file.dag_id] = [file]
    return dict(sorted(by.items()))


def _build_or_stub_dag(dag_id: str, of_it: Sequence[_DefinitionFile], shared: Mapping[str, Any]) -> DAG:
    """Build the DAG of a file; or one that reports its error, or that several files want the same id."""
    if len(of_it) == 1 and of_it[0].error is None:
        (file,) = of_it
        try:
            return _built(file, shared)
        except DefinitionFileError as e:
            file.error = _error(file.name, e.problems)
        except CdcError as e:
            file.error = _of_code(file.name, e)
        except Exception as e:
            # any objection of Airflow to an argument: it would break the DAGs of all files
            file.error = _error(file.name, [DefinitionProblem(None, None, f"{type(e).__name__}: {e}")])
    texts = dict.fromkeys(str(file.error) for file in of_it)
    return _stub(dag_id, "\n\n".join(texts), shared)


def _built(file: _DefinitionFile, shared: Mapping[str, Any]) -> DAG:
    assert file.definition is not None
    assert file.connector is not None
    names = config_class(file.connector.source).wrong_names(file.connector.properties)
    if wrong := [file.stack.locate_problem(("properties", name), f"{name}: {text}") for name, text in names.items()]:
        raise DefinitionFileError(wrong)
    arguments = build_arguments(file.definition)
    for name in ConnectorPart.model_fields:
        arguments.pop(name, None)
    arguments["default_args"] = {**shared, **arguments.get("default_args", {})}
    # a block that an error leaves counts for Airflow, too: it is entered again when the DAG is complete
    dag = cdc_dag(file.connector, **arguments, auto_register=False)
    try:
        dag.validate()  # type: ignore[no-untyped-call]
    except Exception as e:
        raise DefinitionFileError([file.stack.locate_problem(("schedule",), f"schedule: {e}")]) from e
    dag.auto_register = True
    dag.doc_md = f"{dag.doc_md}\n\nDefined in `{file.name}`."
    return dag


def _stub(dag_id: str, text: str, shared: Mapping[str, Any]) -> DAG:
    quoted = "\n".join(f"    {line}" for line in text.splitlines())
    with DAG(
        dag_id,
        schedule=BROKEN_EVERY,
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        dag_display_name=f"{dag_id} (broken definition)",
        tags=["cdc", BROKEN],
        doc_md=f"This connector is not captured, because its definition cannot be used:\n\n{quoted}\n",
        default_args=dict(shared),
        auto_register=False,
    ) as dag:
        BrokenDefinitionOperator(task_id="definition", error=text, retries=0)
    dag.auto_register = True
    return dag


_SAFE = "This connector is not captured until then; its offset, change log and tables are unchanged. Other definitions are not affected."
_REMEDY = (
    "correct the file. Airflow reads it again within [dag_processor] min_file_process_interval (30 s), and the next run continues where the last run "
    "ended"
)


def _error(name: str, problems: Sequence[DefinitionProblem]) -> ConfigError:
    lines = [f"  {problem.format_problem(name)}" for problem in problems]
    return ConfigError(f"The definition {name} cannot be used:\n" + "\n".join(lines), safe=_SAFE, remedy=_REMEDY)


def _of_code(name: str, error: CdcError) -> ConfigError:
    return ConfigError(
        f"The definition {name} cannot be used:\n  {error.message}",
        where=error.where,
        safe=_SAFE,
        remedy=f"{error.remedy}; change the file, which Airflow reads again within half a minute"
        if error.remedy
        else _REMEDY,
    )
