"""Operators of the stand-in's aggregation: examples and rules of MongoDB's manual, and the errors of the server."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.expressions import expressions
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.errors import MongoError

DATE = DatetimeMS(1735787045678)  # 2025-01-02T03:04:05.678Z, a Thursday
OID = ObjectId("65f0c0000000000000000001")
MANUAL: list[tuple[Any, Any]] = [
    ({"$toInt": 5.5}, 5), ({"$toInt": "-7"}, -7), ({"$toInt": Decimal128("5.50")}, 5), ({"$toInt": None}, None), ({"$toInt": True}, 1),
    ({"$toLong": DATE}, Int64(1735787045678)), ({"$toDouble": "-5.5"}, -5.5), ({"$toDecimal": "1.50"}, Decimal128("1.50")), ({"$toBool": "false"}, True),
    ({"$toBool": 0}, False), ({"$toObjectId": "65f0c0000000000000000001"}, OID), ({"$toDate": "2025-01-02T03:04:05.678Z"}, DATE),
    ({"$toDate": "2025-01-02"}, DatetimeMS(1735776000000)), ({"$toString": 2.5}, "2.5"), ({"$toString": 1e300}, "1e+300"), ({"$toString": 3.0}, "3"),
    ({"$toString": 1e-7}, "1e-7"), ({"$toString": DATE}, "2025-01-02T03:04:05.678Z"), ({"$toString": Int64(7)}, "7"), ({"$toString": OID}, str(OID)),
    ({"$convert": {"input": "x", "to": "int", "onError": "none"}}, "none"), ({"$convert": {"input": None, "to": "int", "onNull": 0}}, 0),
    ({"$convert": {"input": "9", "to": 18}}, Int64(9)),
    ({"$round": [2.5, 0]}, 2.0), ({"$round": [19.25, 1]}, 19.2), ({"$round": [1234, -2]}, 1200), ({"$round": Decimal128("1.255")}, Decimal128("1")),
    ({"$trunc": [-2.79, 1]}, -2.7), ({"$trunc": 7}, 7), ({"$pow": [5, 2]}, 25), ({"$pow": [5, -2]}, 0.04), ({"$pow": [2, 40]}, Int64(2**40)),
    ({"$sqrt": 25}, 5.0), ({"$log": [100, 10]}, 2.0), ({"$log10": 100}, 2.0), ({"$exp": 0}, 1.0), ({"$bitAnd": [5, 3]}, 1), ({"$bitNot": Int64(3)}, Int64(-4)),
    ({"$range": [0, 10, 3]}, [0, 3, 6, 9]), ({"$range": [10, 0, -5]}, [10, 5]), ({"$zip": {"inputs": [["a"], [1, 2]]}}, [["a", 1]]),
    ({"$zip": {"inputs": [[1], [2, 3]], "useLongestLength": True, "defaults": ["x", "y"]}}, [[1, 2], ["x", 3]]),
    ({"$indexOfArray": [["a", "b"], "b"]}, 1), ({"$indexOfArray": [["a", "b"], "b", 0, 1]}, -1), ({"$indexOfCP": ["cafétéria", "é"]}, 3),
    ({"$indexOfBytes": ["cafétéria", "t"]}, 5), ({"$strLenBytes": "cafétéria"}, 11), ({"$strLenCP": "cafétéria"}, 9), ({"$substrBytes": ["abcde", 1, 2]}, "bc"),
    ({"$strcasecmp": ["13Q1", "13q4"]}, -1), ({"$trim": {"input": "  \n good bye \t"}}, "good bye"), ({"$ltrim": {"input": "ggggoodbyeeeee", "chars": "gd"}}, "oodbyeeeee"),
    ({"$toUpper": "é1b"}, "é1B"), ({"$replaceOne": {"input": "aa", "find": "a", "replacement": "b"}}, "ba"), ({"$split": ["a-b", "-"]}, ["a", "b"]),
    ({"$regexMatch": {"input": "Line", "regex": "line", "options": "i"}}, True),
    ({"$regexFind": {"input": "ab12", "regex": "([a-z]+)(x)?"}}, {"match": "ab", "idx": 0, "captures": ["ab", None]}),
    ({"$sortArray": {"input": [3, "a", 1], "sortBy": 1}}, [1, 3, "a"]), ({"$sortArray": {"input": [{"a": 1}, {"a": 2}], "sortBy": {"a": -1}}}, [{"a": 2}, {"a": 1}]),
    ({"$firstN": {"n": 2, "input": [1, 2, 3]}}, [1, 2]), ({"$maxN": {"n": 2, "input": [1, None, 3, 2]}}, [3, 2]),
    ({"$setEquals": [["a", "b", "a"], ["b", "a"]]}, True), ({"$setIsSubset": [["a"], ["b", "a"]]}, True), ({"$anyElementTrue": [[0, False]]}, False),
    ({"$allElementsTrue": [[]]}, True), ({"$bsonSize": {"a": 1}}, 12), ({"$binarySize": "é"}, 2), ({"$tsSecond": Timestamp(5, 6)}, Int64(5)),
    ({"$year": DATE}, 2025), ({"$dayOfYear": DATE}, 2), ({"$dayOfWeek": DATE}, 5), ({"$isoWeek": DATE}, 1), ({"$hour": {"date": DATE, "timezone": "+02:00"}}, 5),
    ({"$hour": {"date": DATE, "timezone": "America/New_York"}}, 22), ({"$year": None}, None),
    ({"$dateToString": {"date": DATE, "format": "%Y/%m/%d %H:%M:%S:%L%z week %V day %j"}}, "2025/01/02 03:04:05:678+0000 week 01 day 002"),
    ({"$dateToString": {"date": None, "onNull": "none"}}, "none"), ({"$dateFromString": {"dateString": "x", "onError": 0}}, 0),
    ({"$dateAdd": {"startDate": DatetimeMS(1706659200000), "unit": "month", "amount": 1}}, DatetimeMS(1709164800000)),  # from 31 January to 29 February
    ({"$dateSubtract": {"startDate": DATE, "unit": "hour", "amount": 1}}, DatetimeMS(1735783445678)),
    ({"$dateDiff": {"startDate": DatetimeMS(1735689599999), "endDate": DatetimeMS(1735689600000), "unit": "year"}}, Int64(1)),
    ({"$dateDiff": {"startDate": DATE, "endDate": DatetimeMS(1736121600000), "unit": "week"}}, Int64(1)),  # to Monday, past a Sunday
    ({"$dateTrunc": {"date": DATE, "unit": "hour", "binSize": 2}}, DatetimeMS(1735783200000)),
    ({"$dateTrunc": {"date": DATE, "unit": "week", "startOfWeek": "monday"}}, DatetimeMS(1735516800000)),
    ({"$dateFromParts": {"year": 2025, "month": 14, "day": 2}}, DatetimeMS(1769990400000)), ({"$dateToParts": {"date": DATE}}, {
        "year": 2025, "month": 1, "day": 2, "hour": 3, "minute": 4, "second": 5, "millisecond": 678,
    }),
]  # fmt: skip
REFUSED: list[tuple[Any, int]] = [
    ({"$nonsense": 1}, 168), ({"$toInt": "1.5"}, 241), ({"$toInt": 2**31}, 241), ({"$toInt": DATE}, 241), ({"$toLong": float("inf")}, 241), ({"$toDate": 5}, 241),
    ({"$toObjectId": "x"}, 241), ({"$toString": [[1]]}, 241), ({"$convert": {"input": 1, "to": "nonsense"}}, 2), ({"$convert": {"input": 1}}, 9),
    ({"$strLenCP": None}, 34471), ({"$strLenBytes": 5}, 34473), ({"$split": ["a", ""]}, 40087), ({"$range": [0, 1, 0]}, 34449), ({"$range": [0.5, 1]}, 34444),
    ({"$pow": [0, -1]}, 28764), ({"$sqrt": -1}, 28714), ({"$ln": 0}, 28766), ({"$log": [1, 1]}, 28759), ({"$round": "x"}, 51081), ({"$trim": {"input": 5}}, 50699),
    ({"$setEquals": [[1], 2]}, 17044), ({"$anyElementTrue": 1}, 17041), ({"$indexOfArray": ["x", 1]}, 40090), ({"$regexMatch": {"input": 1, "regex": "a"}}, 51104),
    ({"$year": "x"}, 16006), ({"$hour": {"date": DATE, "timezone": "Nowhere"}}, 40485), ({"$firstN": {"n": 0, "input": []}}, 5787908), ({"$bitAnd": [1, 2.0]}, 14),
    ({"$sortArray": {"input": 5, "sortBy": 1}}, 2942504), ({"$eq": [1]}, 16020), ({"$round": [1, 2, 3]}, 28667),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "result"), MANUAL, ids=str)
def test_an_operator_makes_what_the_manual_says(expression: Any, result: Any) -> None:
    found = expressions.compile_expression(expression)({}, {})
    assert type(found) is type(result)
    assert order.key(found) == order.key(result), found


@pytest.mark.parametrize(("expression", "code"), REFUSED, ids=str)
def test_what_it_cannot_compute_is_refused_with_the_servers_code(expression: Any, code: int) -> None:
    with pytest.raises(MongoError) as refused:
        expressions.compile_expression(expression)({}, {})
    assert refused.value.code == code
