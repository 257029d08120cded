"""Classes of the JVM that releases of Spark and of the table formats place or shape in different ways."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

log = logging.getLogger("airflow_provider_cdc.targets.lake.spark_releases")
_CONVERTERS = "scala.jdk.javaapi.CollectionConverters"
"""A member of Scala 2.13, which Scala 2.12 lacks."""
_MAPPER = "com.fasterxml.jackson.databind.ObjectMapper"
_SCALA_MODULE = "com.fasterxml.jackson.module.scala.DefaultScalaModule"


def load_jvm_class(spark: SparkSession, name: str) -> Any:
    """Return a class by its full name.

    Looked up part by part (``_jvm.java.util``), each part is searched for in all jars.
    """
    return getattr(spark._jvm, name)


def load_session_class(spark: SparkSession, name: str) -> Any:
    """Return a class that stands beside the session's own, such as ``Dataset``: since Spark 4.0 in ``org.apache.spark.sql.classic``."""
    return load_jvm_class(spark, f"{_facts(spark).session_package}.{name}")


def activate_session(spark: SparkSession) -> None:
    """Make the session this thread's. Threads of Python have none, and the table formats take their settings from it."""
    load_session_class(spark, "SparkSession").setActiveSession(spark._jsparkSession)


def scala_to_python(spark: SparkSession, collection: Any) -> Any:
    """Convert a collection of Scala to Python's, in few calls: py4j's own way has several for each value."""
    facts = _facts(spark)
    if facts.scala_mapper is not None:
        return json.loads(facts.scala_mapper.writeValueAsString(collection))
    java = load_jvm_class(spark, _CONVERTERS).asJava(collection)
    return json.loads(load_jvm_class(spark, _MAPPER)().writeValueAsString(java))


def python_to_scala(spark: SparkSession, values: Iterable[Any]) -> Any:
    """Build a sequence of Scala's."""
    array_list = load_jvm_class(spark, "java.util.ArrayList")()
    for value in values:
        array_list.add(value)
    if _facts(spark).scala_mapper is not None:
        return load_jvm_class(spark, "scala.collection.JavaConverters").asScalaBuffer(array_list).toSeq()
    return load_jvm_class(spark, _CONVERTERS).asScala(array_list).toSeq()


class _JvmFacts:
    """The facts about one JVM, asked once.

    :ivar session_package: of the classes of sessions
    :ivar scala_mapper: writes collections of Scala 2.12 as JSON; ``None`` with Scala 2.13, which converts them itself
    :ivar members: class → its methods and constructors, of those that were asked for
    :ivar fields: class and field → whether there is such a field
    :ivar obstacles: library → :func:`find_missing_member`
    """

    def __init__(self, spark: SparkSession) -> None:
        self.session_package = str(spark._jsparkSession.getClass().getName()).rpartition(".")[0]
        self.members = dict[str, dict[str, frozenset[int]]]()
        self.fields = dict[tuple[str, str], bool]()
        self.obstacles = dict[str, str]()
        self.scala_mapper: Any = None
        if not has_class(spark, _CONVERTERS):
            self.scala_mapper = load_jvm_class(spark, _MAPPER)()
            self.scala_mapper.registerModule(load_jvm_class(spark, _SCALA_MODULE)())


_FACTS: WeakKeyDictionary[SparkContext, _JvmFacts] = WeakKeyDictionary()


def _facts(spark: SparkSession) -> _JvmFacts:
    context = spark.sparkContext
    if context not in _FACTS:
        _FACTS[context] = _JvmFacts(spark)
    return _FACTS[context]


def _class_loader(spark: SparkSession) -> Any:
    """Return the loader that also knows the jars of ``spark.jars``."""
    return load_jvm_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the JVM has a class."""
    try:
        load_jvm_class(spark, "java.lang.Class").forName(name, False, _class_loader(spark))
    except (Py4JError, PySparkException):
        return False
    return True


@dataclass(frozen=True)
class JvmMember:
    """A method or constructor that the jobs call without a public interface.

    :param owner: full name of its class
    :param name: of the method; of a constructor, the class's full name
    :param parameters: their number
    """

    owner: str
    name: str
    parameters: int


def count_parameters(spark: SparkSession, owner: str, name: str = "") -> frozenset[int]:
    """Return the numbers of parameters of a method's overloads, or of a class's constructors; empty if it has none.

    >>> count_parameters(spark, "java.lang.String", "isEmpty")
    frozenset({0})
    """
    facts = _facts(spark)
    if owner not in facts.members:
        facts.members[owner] = _list_members(spark, owner)
    return facts.members[owner].get(name or owner, frozenset())


def _list_members(spark: SparkSession, owner: str) -> dict[str, frozenset[int]]:
    """Name → numbers of parameters, of a class's public methods and constructors; empty if there is no such class."""
    try:
        class_ = load_jvm_class(spark, "java.lang.Class").forName(owner, False, _class_loader(spark))
        to_text = load_jvm_class(spark, "org.apache.commons.lang3.ArrayUtils").toString
        text = f"{to_text(class_.getMethods())} {to_text(class_.getConstructors())}"
    except (Py4JError, PySparkException):
        return {}
    members: dict[str, set[int]] = {}
    for full_name, parameters in _MEMBER.findall(text):
        name = full_name if full_name == owner else full_name.rpartition(".")[2]
        members.setdefault(name, set()).add(parameters.count(",") + 1 if parameters else 0)
    return {name: frozenset(numbers) for name, numbers in members.items()}


_MEMBER = re.compile(r"([\w.$]+)\(([^)]*)\)")
"""A member as Java prints it: ``public int java.lang.String.indexOf(int,int)``."""


def has_field(spark: SparkSession, owner: str, name: str) -> bool:
    """Return whether a class has a public field, for which the JVM is asked once.

    >>> has_field(spark, "java.lang.Integer", "MAX_VALUE")
    True
    """
    fields, key = _facts(spark).fields, (owner, name)
    if key not in fields:
        try:
            load_jvm_class(spark, "java.lang.Class").forName(owner, False, _class_loader(spark)).getField(name)
            fields[key] = True
        except (Py4JError, PySparkException):
            fields[key] = False
    return fields[key]


def find_missing_member(spark: SparkSession, library: str, members: Sequence[JvmMember]) -> str:
    """Why the jobs cannot commit arrays with the session's release of a library; empty if they can.

    Asked once for each session; the log has the reason once.
    """
    facts = _facts(spark)
    if library not in facts.obstacles:
        missing = [m for m in members if m.parameters not in count_parameters(spark, m.owner, m.name)]
        facts.obstacles[library] = (
            f"this release of {library} has no {missing[0].owner}.{missing[0].name}" if missing else ""
        )
        if missing:
            log.warning("Spark merges all batches: %s.", facts.obstacles[library])
    return facts.obstacles[library]
