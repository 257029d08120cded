"""Options of the server."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Settings:
    """The settings of the database and of its capture agent."""

    agent: bool = True
    """True if the capture agent runs from the start."""
    agent_interval: float = 0.02
    """COMMIT_INTERVAL in seconds, unless IBMSNAP_CAPPARMS has another one than ASN's 30."""
    idle_interval: float = 0.1
    """SLEEP_INTERVAL in seconds, unless IBMSNAP_CAPPARMS has another one than ASN's 5."""
    delay: float = 0.0
    """How many seconds the change tables are behind the log."""
    upd_to_del_ins: bool = True
    """True if ADDTABLE registers tables so that an update is a D and an I."""
    before_prefix: str | None = None
    """BEFORE_IMG_PREFIX with which ADDTABLE registers tables."""
    lsn_bytes: int = 16
    """Of how many bytes LSNs are: 16, or 10 as in older versions."""
    lock_timeout: float | None = 10.0
    """LOCKTIMEOUT of the database in seconds; None: wait for ever. Db2's default is for ever."""
    synchpoints: str = "none"
    """Which synchpoints of registrations the agent fills: ``none``, as after ADDTABLE; ``new`` (CD_NEW_SYNCHPOINT); ``both``, as with an Apply program."""
    lob_columns: str = "lob"
    """Columns that ADDTABLE makes for large objects: ``lob``, of their type, as the documented ADDTABLE; ``letter``, CHAR(1), as other tools do."""
    lob_writes: str = "indicator"
    """Values that the agent writes into columns of their type: an ``indicator`` where the value has changed, ``nothing``, or the ``values``."""
    insert_uow: bool = True
    """INSERT_UOW: whether IBMSNAP_UOW has a row of each transaction."""
    log_seconds: bool = False
    """True if the log has times in whole seconds."""
    groups: dict[str, list[str]] = field(default_factory=dict)
    """Groups of users, which only the operating system knows, not the catalog."""
    authorize: bool = False
    """True if users other than the instance owner need privileges."""
    heap_mb: int = 512
    """Memory of the engine."""
