"""The effect of each update operator on a value."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bson import Int64
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.query import queries
from dev.servers.mongodb.values import numbers, order
from dev.servers.mongodb.values.documents import INT32, Document, copy
from dev.servers.mongodb.values.errors import MongoError, type_name


class NoValue:
    """No value: the field stays as it is, or is not made."""


NOTHING = NoValue()


@dataclass
class Result:
    """The new value; ``appended`` if an array only grew at its end."""

    value: Any
    appended: bool = False
    forced: bool = False
    """True if it is written even when nothing changed."""


class Modifier:
    """An operator at a path."""

    creates = True
    name = ""

    def __init__(self, argument: Any, path: str) -> None:
        self.argument, self.path = argument, path
        self.check()

    def check(self) -> None:
        """Raise when the argument is wrong."""

    def initial(self, work: Any) -> Any:
        """The value where there is none yet."""
        return copy(self.argument)

    def changed(self, before: Any, work: Any) -> Result:
        """The value that takes the place of ``before``."""
        return Result(self.initial(work))


class Set(Modifier):
    name = "$set"


class SetOnInsert(Modifier):
    name = "$setOnInsert"


class Unset(Modifier):
    name, creates = "$unset", False


class RenamePlaceholder(Modifier):
    """Holds the place of the source of a ``$rename``, so that no other operator is there."""

    name, creates = "$placeholder", False


class Rename(Modifier):
    """At the destination; the argument is the source."""

    name = "$rename"

    def check(self) -> None:
        """The source was checked where it was read."""


class Inc(Modifier):
    name = "$inc"
    work: Callable[[Any, Any], Any] = staticmethod(numbers.add)

    def check(self) -> None:
        if not order.is_number(self.argument):
            raise MongoError(
                14,
                f"Cannot {'increment' if self.name == '$inc' else 'multiply'} with non-numeric argument: {{{self.path}: {self.argument}}}",
            )

    def changed(self, before: Any, work: Any) -> Result:
        if not order.is_number(before):
            raise MongoError(
                14,
                f"Cannot apply {self.name} to a value of non-numeric type. The field '{self.path}' is of type {type_name(before)}",
            )
        return Result(numbers.compute_number(before, self.argument, self.work, operator=self.name))


class Mul(Inc):
    name = "$mul"
    work = staticmethod(numbers.multiply)

    def initial(self, work: Any) -> Any:
        return numbers.compute_number(0, self.argument, numbers.multiply)


class Min(Modifier):
    name = "$min"

    def changed(self, before: Any, work: Any) -> Result:
        return Result(copy(self.argument)) if order.key(self.argument) < order.key(before) else Result(NOTHING)


class Max(Modifier):
    name = "$max"

    def changed(self, before: Any, work: Any) -> Result:
        return Result(copy(self.argument)) if order.key(self.argument) > order.key(before) else Result(NOTHING)


class Bit(Modifier):
    name = "$bit"
    WORKS: dict[str, Callable[[int, int], int]] = {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
    }

    def check(self) -> None:
        if not isinstance(self.argument, dict):
            raise MongoError(2, "The $bit modifier is not compatible with a " + type_name(self.argument))
        for name, value in self.argument.items():
            if name not in self.WORKS:
                raise MongoError(2, f"The $bit modifier only supports 'and', 'or', and 'xor', not '{name}'")
            if type(value) not in (int, Int64):
                raise MongoError(2, "The $bit modifier field must be an Integer(32/64 bit)")

    def initial(self, work: Any) -> Any:
        return self.changed(0, work).value

    def changed(self, before: Any, work: Any) -> Result:
        if type(before) not in (int, Int64):
            raise MongoError(
                2, f"Cannot apply $bit to a value of non-integral type. The field has the type {type_name(before)}"
            )
        for name, value in self.argument.items():
            result = self.WORKS[name](int(before), int(value))
            before = (
                Int64(result)
                if isinstance(before, Int64) or isinstance(value, Int64) or result not in INT32
                else result
            )
        return Result(before)


class CurrentDate(Modifier):
    name = "$currentDate"

    def check(self) -> None:
        if isinstance(self.argument, bool):
            return
        if not isinstance(self.argument, dict) or self.argument.get("$type") not in ("date", "timestamp"):
            raise MongoError(
                2,
                f"{type_name(self.argument)} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression",
            )

    def initial(self, work: Any) -> Any:
        if isinstance(self.argument, dict) and self.argument["$type"] == "timestamp":
            return work.clock()
        return DatetimeMS(time.time_ns() // 1_000_000)


class _OnArray(Modifier):
    def array(self, before: Any) -> list[Any]:
        """The array to change."""
        if not isinstance(before, list):
            raise MongoError(
                2, f"The field '{self.path}' must be an array but is of type {type_name(before)} in document"
            )
        return before


def value_to_add(argument: Any) -> list[Any]:
    """Return the values that ``$push`` and ``$addToSet`` add: a single one, or those of ``$each``."""
    if isinstance(argument, dict) and "$each" in argument:
        if not isinstance(argument["$each"], list):
            raise MongoError(
                2, f"The argument to $each must be an array but it was of type: {type_name(argument['$each'])}"
            )
        return list(argument["$each"])
    return [argument]


class Push(_OnArray):
    name = "$push"

    def check(self) -> None:
        self.items = value_to_add(self.argument)
        options: Document = self.argument if isinstance(self.argument, dict) and "$each" in self.argument else {}
        for name in options:
            if name not in ("$each", "$slice", "$sort", "$position"):
                raise MongoError(2, f"Unrecognized clause in $push: {name}")
        self.slice = self._whole(options, "$slice")
        self.position = self._whole(options, "$position")
        self.sort = options.get("$sort")

    @staticmethod
    def _whole(options: Document, name: str) -> int | None:
        value = options.get(name)
        if name in options and (not order.is_number(value) or order.number(value) != int(order.number(value))):
            raise MongoError(2, f"The value for {name} must be an integer value but was given type: {type_name(value)}")
        return int(order.number(value)) if name in options else None

    def initial(self, work: Any) -> Any:
        return self._pushed([]).value

    def changed(self, before: Any, work: Any) -> Result:
        result = self._pushed(self.array(before))
        return result if result.value is not before else Result(NOTHING)

    def _pushed(self, before: list[Any]) -> Result:
        after, appended = list(before), bool(before)
        if self.position is None or self.position > len(before):
            after += copy(self.items)
        else:
            place = self.position if self.position >= 0 else max(len(before) + self.position, 0)
            after[place:place] = copy(self.items)
            appended = False
        if self.sort is not None:
            after = _sort_items(after, self.sort)
            appended = False
        if self.slice is not None and len(after) > abs(self.slice):
            after = after[: self.slice] if self.slice >= 0 else after[self.slice :]
            appended = False
        return Result(after, appended and bool(self.items), forced=self.sort is not None)


def _sort_items(items: list[Any], spec: Any) -> list[Any]:
    if isinstance(spec, dict):
        out = items
        for path, direction in reversed(spec.items()):
            parts = path.split(".")
            out = sorted(out, key=lambda item: order.key(_value_at(item, parts)), reverse=order.number(direction) < 0)
        return out
    return sorted(items, key=order.key, reverse=order.number(spec) < 0)


def _value_at(item: Any, parts: list[str]) -> Any:
    for part in parts:
        item = item.get(part) if isinstance(item, dict) else None
    return item


class AddToSet(_OnArray):
    name = "$addToSet"

    def check(self) -> None:
        self.items = value_to_add(self.argument)

    def initial(self, work: Any) -> Any:
        return self._new([])

    def _new(self, before: list[Any]) -> list[Any]:
        known = {order.key(item) for item in before}
        out = []
        for item in self.items:
            if order.key(item) not in known:
                known.add(order.key(item))
                out.append(copy(item))
        return out

    def changed(self, before: Any, work: Any) -> Result:
        new = self._new(self.array(before))
        return Result([*before, *new], appended=True) if new else Result(NOTHING)


class Pop(_OnArray):
    name, creates = "$pop", False

    def check(self) -> None:
        if not order.is_number(self.argument) or order.number(self.argument) not in (1, -1):
            raise MongoError(9, f"$pop expects 1 or -1, found: {self.argument}")

    def array(self, before: Any) -> list[Any]:
        if not isinstance(before, list):
            raise MongoError(14, f"Path '{self.path}' contains an element of non-array type '{type_name(before)}'")
        return before

    def changed(self, before: Any, work: Any) -> Result:
        if not self.array(before):
            return Result(NOTHING)
        return Result(before[:-1] if order.number(self.argument) == 1 else before[1:])


class Pull(_OnArray):
    name, creates = "$pull", False

    def check(self) -> None:
        self.test = queries.element_matching(self.argument)

    def array(self, before: Any) -> list[Any]:
        if not isinstance(before, list):
            raise MongoError(2, f"Cannot apply {self.name} to a non-array value")
        return before

    def changed(self, before: Any, work: Any) -> Result:
        kept = [item for item in self.array(before) if not self.test(item)]
        return Result(kept) if len(kept) != len(before) else Result(NOTHING)


class PullAll(Pull):
    name = "$pullAll"

    def check(self) -> None:
        if not isinstance(self.argument, list):
            raise MongoError(2, f"$pullAll requires an array argument but was given a {type_name(self.argument)}")
        places = {order.key(item) for item in self.argument}
        self.test = lambda item: order.key(item) in places


MODIFIERS: dict[str, type[Modifier]] = {
    kind.name: kind
    for kind in (
        Set,
        SetOnInsert,
        Unset,
        RenamePlaceholder,
        Rename,
        Inc,
        Mul,
        Min,
        Max,
        Bit,
        CurrentDate,
        Push,
        AddToSet,
        Pop,
        Pull,
        PullAll,
    )
}
"""The operators by name; ``$placeholder`` is none that a client may use."""
