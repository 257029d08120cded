"""From measured runs to a table, a JSON document, and what the bars say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bar:
    """A figure that a benchmark has to reach: ``name`` is a dotted path into the document."""

    name: str
    limit: float
    at_most: bool = False

    def met(self, document: dict[str, Any]) -> bool | None:
        """``None`` when the figure was not measured."""
        found: Any = document
        for part in self.name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return None if found is None else (found <= self.limit if self.at_most else found >= self.limit)


def summed_up(runs: list[dict[str, Any]], unit: str) -> dict[str, Any]:
    """The median of several runs, by its rate; memory is the highest of all.

    :param unit: ``events`` or ``rows``
    """
    rates = sorted(runs, key=lambda run: _rate(run, "seconds"))
    middle = rates[(len(rates) - 1) // 2]
    return {
        f"{unit}_per_s": round(_rate(middle, "seconds")),
        f"{unit}_per_cpu_s": round(_rate(middle, "cpu_s")),
        "cpu_s": middle["cpu_s"],
        "cpu_s_total": middle["cpu_s_total"],
        "seconds": middle["seconds"],
        "peak_rss_mb": max(run["peak_rss_mb"] for run in runs),
        "events": middle["events"],
        "runs": len(runs),
    }


def build_document(ours: dict[str, Any], debezium: dict[str, Any] | None, unit: str) -> dict[str, Any]:
    """The document that ``--json`` writes."""
    document: dict[str, Any] = {"ours": ours}
    if debezium is not None:
        document["debezium"] = debezium
        names = (f"{unit}_per_s", f"{unit}_per_cpu_s")
        document["ratio"] = {name: round(ours[name] / debezium[name], 2) for name in names if debezium[name]}
    return document


def table(document: dict[str, Any], unit: str) -> str:
    """For people."""
    sides = [name for name in ("ours", "debezium", "tuned") if name in document]
    rows = [
        (f"{unit} per second", f"{unit}_per_s", "{:,.0f}"),
        (f"{unit} per CPU second", f"{unit}_per_cpu_s", "{:,.0f}"),
        ("seconds", "seconds", "{:.2f}"),
        ("CPU seconds", "cpu_s", "{:.2f}"),
        ("CPU seconds with start", "cpu_s_total", "{:.2f}"),
        ("peak memory, MB", "peak_rss_mb", "{:,.0f}"),
        ("runs", "runs", "{}"),
    ]
    ratio = document.get("ratio", {})
    lines = [f"{'':<26}" + "".join(f"{side:>14}" for side in sides) + (f"{'ratio':>10}" if ratio else "")]
    for title, name, form in rows:
        line = f"{title:<26}" + "".join(f"{form.format(document[side][name]):>14}" for side in sides)
        lines.append(line + (f"{ratio[name]:>10.1f}" if name in ratio else ""))
    return "\n".join(lines)


def compute_shares(stages: dict[str, dict[str, float]], cpu_s: float) -> dict[str, dict[str, float]]:
    """Stages with their share of the whole CPU time; what no stage covers is ``other``."""
    known = sum(stage["cpu_s"] for stage in stages.values())
    whole = {**stages, "other": {"cpu_s": round(max(cpu_s - known, 0.0), 3), "wall_s": 0.0}}
    total = sum(stage["cpu_s"] for stage in whole.values()) or 1.0
    return {name: {**stage, "share": round(stage["cpu_s"] / total, 3)} for name, stage in whole.items()}


def shares_text(stages: dict[str, dict[str, float]]) -> str:
    lines = [f"{'where the time goes':<26}{'CPU s':>14}{'share':>10}{'wall s':>10}"]
    for name, stage in sorted(stages.items(), key=lambda item: -item[1]["cpu_s"]):
        wall = f"{stage['wall_s']:>10.2f}" if name != "other" else ""
        lines.append(f"  {name:<24}{stage['cpu_s']:>14.2f}{stage['share']:>10.1%}{wall}")
    return "\n".join(lines)


def verdicts(bars: list[Bar], document: dict[str, Any]) -> tuple[str, bool]:
    """A line for each bar, and whether all were met; one that was not measured is not met."""
    lines, fine = [], True
    for bar in bars:
        met = bar.met(document)
        fine = fine and met is True
        word = {True: "pass", False: "FAIL", None: "not measured"}[met]
        lines.append(f"{word:<14}{bar.name} {'at most' if bar.at_most else 'at least'} {bar.limit:g}")
    return "\n".join(lines), fine


def _rate(run: dict[str, Any], per: str) -> float:
    return float(run["events"] / run[per]) if run[per] else 0.0
