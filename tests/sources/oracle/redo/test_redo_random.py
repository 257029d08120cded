"""Random rows → redo texts → the same rows; kernel against plain path; texts that were damaged."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader
from tests.sources.oracle.redo import redo_sql
from tests.sources.oracle.redo.redo_tables import config, images, read, table
from tests.support.patience import LONGEST_S

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


def reader(**properties: Any) -> RedoReader:
    given = config(**{"lob.enabled": True, **properties})
    return RedoReader(table(redo_sql.TYPES, given), given)


def generate_statements(seed: int, count: int) -> tuple[list[str], list[int], list[dict[str, Any]]]:
    """Texts, operation codes, and the images that they stand for."""
    r = random.Random(seed)
    texts, codes, expected = [], [], []
    for _ in range(count):
        row = redo_sql.random_row(r)
        # LogMiner leaves LOBs out of where
        named = {n: v for n, v in row.items() if n not in redo_sql.LOBS}
        code = r.choice((1, 2, 3))
        if code == 1:
            shuffled = dict(r.sample([*row.items()], len(row))) if r.random() < 0.1 else row
            texts.append(redo_sql.insert(r, shuffled))
            found = {"after": row}
        elif code == 2:
            texts.append(redo_sql.delete(r, named))
            found = {"before": named}
        else:
            other = redo_sql.random_row(r)
            changed = {n: other[n] for n in r.sample([*row], r.randint(1, 6))}
            texts.append(redo_sql.update(r, named, changed))
            found = {"before": named, "after": {n: {**named, **changed}[n] for n in row if n in named or n in changed}}
        codes.append(code)
        expected.append(
            {image: {n: redo_sql.recorded_value(n, v) for n, v in of.items()} for image, of in found.items()}
        )
    return texts, codes, expected


@pytest.mark.parametrize("seed", range(8))
def test_random_rows_come_back_as_they_were(seed: int) -> None:
    texts, codes, expected = generate_statements(seed, 250)
    one = reader()
    rows = read(one, texts, codes)
    assert 0 < rows.plain.sum() < 150, "both ways are taken"
    for i, text in enumerate(texts):
        assert images(rows, i, one.schema) == expected[i], text


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"decimal.handling.mode": "double", "time.precision.mode": "connect", "lob.enabled": False},
        {"decimal.handling.mode": "string", "interval.handling.mode": "string", "binary.handling.mode": "base64"},
    ],
    ids=["default", "double-connect", "string"],
)
def test_kernel_and_plain_path_agree(properties: dict[str, Any]) -> None:
    texts, codes, _ = generate_statements(99, 600)
    one = reader(**properties)
    both = one.read(pa.array(texts), np.array(codes))
    plain = one.read_plain(texts, np.array(codes))
    assert both.plain.sum() < 400
    for fast, slow in ((both.before, plain.before), (both.after, plain.after)):
        assert fast is not None
        assert slow is not None
        fast.validate(full=True)
        for name in one.schema.column_names:
            a, b = fast.field(name), slow.field(name)
            assert a.to_string(window=10_000) == b.to_string(window=10_000), name
        assert fast.is_null().equals(slow.is_null())
    assert both.unavailable_before is not None
    assert plain.unavailable_before is not None
    assert (both.unavailable_before == plain.unavailable_before).all()
    assert (both.unavailable_after == plain.unavailable_after).all()
    assert (both.op == plain.op).all()


def test_all_operations_of_one_kind_have_one_image() -> None:
    texts, codes, _ = generate_statements(5, 60)
    one = reader()
    for code, image, other in ((1, "after", "before"), (2, "before", "after")):
        picked = [t for t, c in zip(texts, codes, strict=True) if c == code]
        rows = read(one, picked, [code] * len(picked))
        assert getattr(rows, image).null_count == 0
        assert getattr(rows, other) is None


def _run(task: str, seconds: float, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(HERE / "redo_child.py"), task],
        capture_output=True, text=True, timeout=seconds, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_kernels_without_the_compiler_read_the_same() -> None:
    texts, codes, _ = generate_statements(7, 40)
    one = reader()
    rows = read(one, texts, codes)
    here = [repr(images(rows, i, one.schema)) for i in range(len(texts))]
    there = _run("twin", LONGEST_S, NUMBA_DISABLE_JIT="1")
    assert there == {"plain": rows.plain.tolist(), "rows": here}


_ZONED = """
import numpy as np
from airflow_provider_cdc.sources.oracle.kernels.literal_conversion import _zoned
text = np.frombuffer(b"2020-02-01 07:08:09 +14:00", np.uint8)
print(_zoned(text, 0, len(text), 0, np.empty(60, np.uint8), 0))
"""


def test_compiled_kernels_are_not_kept_when_a_helper_in_another_file_changes(tmp_path: Path) -> None:
    package = tmp_path / "airflow_provider_cdc"
    shutil.copytree(ROOT / "airflow_provider_cdc", package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def end() -> int:
        done = subprocess.run(
            [sys.executable, "-c", _ZONED],
            cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return int(done.stdout)

    assert end() == 25
    helper = package / "sources" / "oracle" / "kernels" / "number_and_date_parsers.py"
    changed = helper.read_text().replace("hour > 15", "hour > 11")
    assert changed != helper.read_text()
    helper.write_text(changed)
    assert end() == -1


def test_damaged_texts_end_in_an_error_or_an_answer() -> None:
    """Never a crash, never a read outside of a text (numba checks every index), never for ever."""
    outcomes = _run("fuzz", LONGEST_S, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(ROOT / ".dev" / "numba-bounds"))
    assert outcomes["texts"] >= 8_000
    assert outcomes["disagreements"] == []
    assert outcomes["fast"] > 200
    assert outcomes["plain"] > 50
    assert outcomes["UnreadableValue"] > 1_000
    assert outcomes["SchemaConflict"] > 50
    assert outcomes["other"] == []
