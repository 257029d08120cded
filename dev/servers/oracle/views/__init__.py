"""The ``V$`` views and the dictionary views: what each has as columns, and its rows for one session."""

from dev.servers.oracle.views import dictionary, dynamic, facts
from dev.servers.oracle.views.base import View, find, register

for module in (dynamic, facts, dictionary):
    register(module.VIEWS)

__all__ = ["View", "find"]
