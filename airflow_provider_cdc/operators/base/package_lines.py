"""The lines with which ``spark-submit`` resolves the packages of a job: up to a hundred at the beginning of each log, needed only if the job fails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_BEGINS = re.compile(r":: loading settings ::|Ivy Default Cache set to:|The jars for the packages stored in:")
_ENDS = re.compile(r"(\d+) artifacts copied, (\d+) already retrieved")
_FAILS = re.compile(r"Exception in thread|UNRESOLVED DEPENDENCIES")
_DOWNLOADS = "downloading "


class PackageLines:
    """Keeps the lines of a resolution back, but for downloads, which may take long.

    :param log: of the task: level DEBUG has all of them
    """

    def __init__(self, log: Any) -> None:
        self._log, self._kept = log, list[str]()

    def filter_lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Return the lines of the program without those of the resolution, if it succeeds.

        A resolution that fails, or does not end, is there as a whole.
        """
        lines, resolves = iter(lines), False
        for line in lines:
            text = line.strip()
            if not resolves and not self._kept:
                resolves = _BEGINS.match(text) is not None
            if not resolves:
                yield line
                continue
            if text.startswith(_DOWNLOADS):
                yield line
                continue
            self._kept.append(line)
            if _FAILS.search(text):
                yield from self._release()
                yield from lines
                return
            if end := _ENDS.match(text):
                resolves = False
                self._log.debug("%s", "".join(self._kept).rstrip())
                yield f"Spark has found {int(end[1]) + int(end[2])} packages, and copied {end[1]} of them.\n"
        if resolves:
            yield from self._release()

    def report_failure(self) -> None:
        """Log the lines of the resolution of a job that has failed: its packages may be the reason."""
        for line in self._release():
            self._log.info("%s", line.rstrip())

    def _release(self) -> list[str]:
        kept, self._kept = self._kept, []
        return kept
