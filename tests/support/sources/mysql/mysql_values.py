"""Values of every type of MySQL and MariaDB that can be captured: what tests of the sources and of relational targets write."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

UTC = dt.UTC
MICRO = dt.timedelta(microseconds=1)

# type, literals to insert, and what the change log must hold for each
COMMON: list[tuple[str, list[tuple[str, Any]]]] = [
    ("TINYINT", [("-128", -128), ("127", 127), ("NULL", None)]),
    ("TINYINT UNSIGNED", [("255", 255), ("0", 0)]),
    ("TINYINT(1)", [("1", 1), ("-1", -1)]),
    ("SMALLINT", [("-32768", -32768), ("32767", 32767)]),
    ("SMALLINT UNSIGNED", [("65535", 65535)]),
    ("MEDIUMINT", [("-8388608", -8388608), ("8388607", 8388607)]),
    ("MEDIUMINT UNSIGNED", [("16777215", 16777215)]),
    ("INT", [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)]),
    ("INT UNSIGNED", [("4294967295", 2**32 - 1)]),
    ("BIGINT", [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    ("BIGINT UNSIGNED", [("9223372036854775807", 2**63 - 1), ("0", 0)]),
    ("FLOAT", [("1.5", 1.5), ("16777216", 16777216.0), ("-3.4028235e38", -3.4028234663852886e38), ("0.1", struct.unpack("f", struct.pack("f", 0.1))[0])]),
    ("DOUBLE", [("1.7976931348623157e308", 1.7976931348623157e308), ("-2.2250738585072014e-308", -2.2250738585072014e-308), ("0.1", 0.1)]),
    ("DOUBLE(20,6)", [("-0.000001", -1.0000000000287557e-06)]),
    ("DECIMAL(12,2)", [("-1234567890.12", Decimal("-1234567890.12")), ("0.01", Decimal("0.01")), ("-0.01", Decimal("-0.01"))]),
    ("DECIMAL(18,18)", [("0.123456789012345678", Decimal("0.123456789012345678")), ("-0.000000000000000001", Decimal("-1e-18"))]),
    ("DECIMAL(18,0)", [("999999999999999999", Decimal(10**18 - 1)), ("-999999999999999999", Decimal(1 - 10**18))]),
    ("DECIMAL(19,9)", [("-1234567890.123456789", Decimal("-1234567890.123456789"))]),
    ("DECIMAL(38,10)", [("-1234567890123456789012345678.0123456789", Decimal("-1234567890123456789012345678.0123456789"))]),
    ("DECIMAL(38,0)", [("99999999999999999999999999999999999999", Decimal(10**38 - 1)), ("-99999999999999999999999999999999999999", Decimal(1 - 10**38))]),
    ("DECIMAL(38,30)", [("-12345678.000000000000000000000000000001", Decimal("-12345678.000000000000000000000000000001"))]),
    ("DECIMAL(65,30)", [("-12345678901234567890123456789012345.123456789012345678901234567890", "-12345678901234567890123456789012345.123456789012345678901234567890"), ("0", "0.000000000000000000000000000000")]),
    ("CHAR(5)", [("'ab'", "ab"), ("''", ""), ("'äöü€😀'", "äöü€😀")]),
    ("VARCHAR(20)", [("'a b '", "a b "), ("'😀é'", "😀é")]),
    ("VARCHAR(300)", [("REPEAT('é', 300)", "é" * 300)]),
    ("CHAR(255)", [("REPEAT('€', 255)", "€" * 255)]),
    ("TINYTEXT", [("'t'", "t")]),
    ("TEXT", [("REPEAT('x', 60000)", "x" * 60000)]),
    ("MEDIUMTEXT", [("REPEAT('y', 70000)", "y" * 70000)]),
    ("LONGTEXT", [("'l'", "l"), ("''", "")]),
    ("VARCHAR(20) CHARACTER SET latin1", [("'äé€'", "äé€"), ("_binary x'81'", "\x81")]),
    ("CHAR(9) CHARACTER SET utf16", [("'aé€'", "aé€")]),
    ("TEXT CHARACTER SET cp1251", [("'Привет'", "Привет")]),
    ("VARCHAR(9) CHARACTER SET sjis", [("'日本'", "日本")]),
    ("VARCHAR(9) CHARACTER SET ucs2", [("'aé'", "aé")]),
    ("BINARY(4)", [("x'61620000'", b"ab\0\0"), ("x'00000000'", b"\0\0\0\0"), ("x'01020304'", b"\x01\x02\x03\x04")]),
    ("VARBINARY(300)", [("x'00ff00'", b"\0\xff\0"), ("''", b"")]),
    ("TINYBLOB", [("x'ff'", b"\xff")]),
    ("BLOB", [("REPEAT(x'00', 40000)", b"\0" * 40000)]),
    ("MEDIUMBLOB", [("x'c3'", b"\xc3")]),
    ("LONGBLOB", [("x'80'", b"\x80")]),
    ("DATE", [("'0001-01-01'", dt.date(1, 1, 1)), ("'9999-12-31'", dt.date(9999, 12, 31)), ("'2024-02-29'", dt.date(2024, 2, 29)), ("'1969-12-31'", dt.date(1969, 12, 31)), ("'0000-00-00'", None), ("'2024-00-10'", None)]),
    ("DATE NOT NULL", [("'0000-00-00'", dt.date(1970, 1, 1))]),
    ("DATETIME", [("'2024-02-29 23:59:59'", dt.datetime(2024, 2, 29, 23, 59, 59)), ("'0000-00-00 00:00:00'", None), ("'1000-01-01 00:00:00'", dt.datetime(1000, 1, 1))]),
    ("DATETIME(1)", [("'2024-02-29 23:59:59.1'", dt.datetime(2024, 2, 29, 23, 59, 59, 100000))]),
    ("DATETIME(2)", [("'2024-02-29 23:59:59.12'", dt.datetime(2024, 2, 29, 23, 59, 59, 120000))]),
    ("DATETIME(3)", [("'2024-02-29 23:59:59.123'", dt.datetime(2024, 2, 29, 23, 59, 59, 123000))]),
    ("DATETIME(4)", [("'2024-02-29 23:59:59.1234'", dt.datetime(2024, 2, 29, 23, 59, 59, 123400))]),
    ("DATETIME(5)", [("'2024-02-29 23:59:59.12345'", dt.datetime(2024, 2, 29, 23, 59, 59, 123450))]),
    ("DATETIME(6)", [("'2024-02-29 23:59:59.123456'", dt.datetime(2024, 2, 29, 23, 59, 59, 123456)), ("'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999))]),
    ("TIMESTAMP NULL", [("'2024-02-29 23:59:59'", dt.datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)), ("'1970-01-01 00:00:01'", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), ("NULL", None), ("'0000-00-00 00:00:00'", None)]),
    ("TIMESTAMP(3) NULL", [("'2024-02-29 23:59:59.5'", dt.datetime(2024, 2, 29, 23, 59, 59, 500000, tzinfo=UTC))]),
    ("TIMESTAMP(6) NOT NULL", [("'2038-01-19 03:14:07.999999'", dt.datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC)), ("'0000-00-00 00:00:00'", dt.datetime(1970, 1, 1, tzinfo=UTC))]),
    ("TIME", [("'-838:59:59'", dt.timedelta(hours=-838, minutes=-59, seconds=-59) // MICRO), ("'838:59:59'", dt.timedelta(hours=838, minutes=59, seconds=59) // MICRO), ("'00:00:00'", 0)]),
    ("TIME(1)", [("'-12:34:56.7'", -dt.timedelta(hours=12, minutes=34, seconds=56, milliseconds=700) // MICRO)]),
    ("TIME(3)", [("'-12:34:56.789'", -dt.timedelta(hours=12, minutes=34, seconds=56, milliseconds=789) // MICRO), ("'-00:00:00.001'", -1000)]),
    ("TIME(6)", [("'-00:00:00.000001'", -1), ("'23:59:59.999999'", dt.timedelta(days=1) // MICRO - 1), ("'-838:00:00.000001'", -(838 * 3600 * 1000000 + 1))]),
    ("YEAR", [("2024", 2024), ("1901", 1901), ("2155", 2155), ("0", 0)]),
    ("BIT(1)", [("b'1'", True), ("b'0'", False)]),
    ("BIT(10)", [("b'1000000011'", b"\x03\x02"), ("b'1'", b"\x01\x00")]),
    ("BIT(64)", [("x'8000000000000001'", b"\x01\0\0\0\0\0\0\x80")]),
    ("ENUM('a','b,c','it''s','')", [("'b,c'", "b,c"), ("'it''s'", "it's"), ("''", "")]),
    ("SET('p','q','r')", [("'p,r'", "p,r"), ("''", ""), ("'q'", "q")]),
    ("ENUM('ä','€') CHARACTER SET latin1", [("'ä'", "ä"), ("'€'", "€")]),
    ("BOOLEAN", [("TRUE", 1), ("FALSE", 0)]),
    ("POINT", [("ST_GeomFromText('POINT(1 2)')", {"wkb": struct.pack("<BIdd", 1, 1, 1.0, 2.0), "srid": None}), ("NULL", None)]),
    ("GEOMETRY", [("ST_GeomFromText('LINESTRING(0 0,1 1)', 4326)", {"wkb": struct.pack("<BIIdddd", 1, 2, 2, 0, 0, 1, 1), "srid": 4326})]),
]  # fmt: skip

MARIADB: list[tuple[str, list[tuple[str, Any]]]] = [
    ("DECIMAL(38,38)", [("-0.00000000000000000000000000000000000001", Decimal("-1e-38"))]),
    ("JSON", [("'{\"b\": 1,  \"a\": [true, null]}'", '{"b": 1,  "a": [true, null]}')]),
    ("UUID", [("'123e4567-e89b-12d3-a456-426655440000'", "123e4567-e89b-12d3-a456-426655440000"), ("'00000000-0000-0000-0000-000000000000'", "00000000-0000-0000-0000-000000000000"), ("'018f3c5a-7b1c-7c3e-8a1b-9d2e3f405160'", "018f3c5a-7b1c-7c3e-8a1b-9d2e3f405160"), ("'ffffffff-ffff-ffff-ffff-ffffffffffff'", "ffffffff-ffff-ffff-ffff-ffffffffffff"), ("'f47ac10b-58cc-4372-a567-0e02b2c3d400'", "f47ac10b-58cc-4372-a567-0e02b2c3d400")]),
    ("INET6", [("'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329"), ("'::'", "::"), ("'::ffff:192.0.2.1'", "::ffff:192.0.2.1"), ("'::192.0.2.1'", "::192.0.2.1"), ("'fe80::'", "fe80::")]),
    ("INET4", [("'10.0.0.0'", "10.0.0.0"), ("'255.1.2.3'", "255.1.2.3")]),
    ("VARCHAR(500) COMPRESSED", [("REPEAT('ab', 200)", "ab" * 200), ("'short'", "short"), ("''", "")]),
    ("TEXT COMPRESSED", [("REPEAT('é', 20000)", "é" * 20000)]),
    ("BLOB COMPRESSED", [("REPEAT(x'00ff', 20000)", b"\0\xff" * 20000)]),
]  # fmt: skip

MYSQL: list[tuple[str, list[tuple[str, Any]]]] = [
    ("JSON", [("'{\"b\": 1, \"a\": [true, null, 1.5, -3, 18446744073709551615, 1e20, \"x\\\\ny\"]}'", None), ("'[]'", "[]"), ("'null'", "null"), ("'\"é😀\"'", '"é😀"'), ("'1.0'", "1.0"), ("NULL", None), ("JSON_OBJECT('d', CAST(1.50 AS DECIMAL(10,2)), 't', CAST('2024-01-02 03:04:05.678' AS DATETIME(3)), 'b', x'00ff')", None), ("(SELECT JSON_OBJECTAGG(n, REPEAT('z', 50)) FROM (SELECT 1 n UNION SELECT 2 UNION SELECT 300) x)", None), ("JSON_ARRAY(REPEAT('k', 70000), 1, 2.5, NULL)", None)]),
]  # fmt: skip

VECTORS: list[tuple[str, list[tuple[str, Any]]]] = [
    ("VECTOR(3)", [("STRING_TO_VECTOR('[1,2.5,-3]')", [1.0, 2.5, -3.0]), ("STRING_TO_VECTOR('[0]')", [0.0]), ("NULL", None)]),
]  # fmt: skip
