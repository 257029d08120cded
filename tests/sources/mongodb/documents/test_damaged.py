"""Documents that are cut off or changed: an error that says where, or an answer; and compiled kernels do what they do uncompiled."""

import os
import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_values
from dev import paths
from dev.java_json import random_bson
from tests.sources.mongodb.documents.damaged import outcomes

COUNT = 80


def test_damaged_documents_end_alike_compiled_and_not() -> None:
    """Uncompiled, a read behind the end of a buffer is an IndexError, which fails the other process."""
    module = "tests.sources.mongodb.documents.damaged"
    other = subprocess.run(
        [sys.executable, "-W", "error", "-m", module, "0", str(COUNT)],
        capture_output=True, text=True, cwd=paths.ROOT, env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert other.returncode == 0, other.stderr[-3000:]
    plain = other.stdout.splitlines()
    compiled = [str(outcomes(seed)) for seed in range(COUNT)]
    assert compiled == plain
    refused = sum("DamagedDocument" in line for line in compiled)
    assert COUNT / 3 < refused < COUNT


@pytest.mark.parametrize(
    "read", [lambda raw: format_values(BsonDocuments.of_list([raw]).document_values), BsonDocuments.of_stream]
)
def test_a_document_that_is_cut_off_anywhere_is_refused(read: Callable[[bytes], object]) -> None:
    for seed in range(30):
        document = random_bson.document(Random(seed))
        for end in range(1, len(document)):
            with pytest.raises(DamagedDocument) as refused:
                read(document[:end])
            assert refused.value.row == 0
            assert 0 <= refused.value.offset <= end


def test_the_error_says_which_document_and_where() -> None:
    good, bad = (
        random_bson.encode_document({"a": (0x10, b"\1\0\0\0")}),
        random_bson.encode_document({"abc": (0x08, b"\2")}),
    )
    with pytest.raises(DamagedDocument) as refused:
        format_values(BsonDocuments.of_list([good, good, bad, good]).document_values)
    assert (refused.value.row, refused.value.offset) == (2, 4)
    assert str(refused.value) == "document 2 cannot be read: at its byte 4, a boolean is neither 0 nor 1"
