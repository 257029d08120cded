"""Statements for Db2 on pages: the test server, which is ours and no Db2, takes them in their order."""

from __future__ import annotations

import re
from collections.abc import Callable

from dev.servers import Db2
from tests.support.docs.page_commands import list_blocks

PAGES = ("docs/sources/db2.md", "docs/reference/signals.md")


def statements(page: str) -> list[str]:
    """List the statements of a page that are for Db2, without their comments."""
    blocks = [block.text for block in list_blocks(page) if block.language == "sql" and "ASNCDC" in block.text]
    text = re.sub(r"--( .*)?$", "", "\n".join(blocks), flags=re.M)
    return [one.strip() for one in re.split(r";\s*(?:\n|$)", text) if one.strip()]


def test_the_statements_of_the_pages_are_taken(db2_factory: Callable[..., Db2]) -> None:
    server = db2_factory()
    server.sql("CREATE TABLE INVENTORY.CUSTOMERS (ID INTEGER NOT NULL PRIMARY KEY)")
    found = [statement for page in PAGES for statement in statements(page)]
    assert len(found) > 20
    for statement in found:
        server.sql(statement)
    registered = {table for (table,) in server.sql("SELECT SOURCE_TABLE FROM ASNCDC.IBMSNAP_REGISTER")}
    assert {"CUSTOMERS", "DEBEZIUM_SIGNAL", "CDC_SIGNAL"} <= registered
