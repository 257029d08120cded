"""The apply beside a plain MERGE of the same format, in the same warm session, on the same change log.

(a) a million changes into a million rows; (b) ten thousand random changes into 1, 5 and 20 million rows; (c) 200 small tables, a hundred changes
each; (d) 500 batches in a row with a maintenance after each sixty, and how fast the table is read then; (e) ten thousand random changes into a million rows of a table by a rule. Each kind of target and each profile is measured in a separate process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from dev import paths
from dev.benchmarks.measure import machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap import jars
from dev.bootstrap.report import Problem, Report, Step

FORMS = [(target, profile) for target in ("delta", "iceberg") for profile in ("compatible", "fast")]
CASES = "abcde"
SIZES = (1, 5, 20)
"""Of case (b), in millions of rows."""
SMALL_TABLES, BATCHES = 200, 500
BARS = [
    Bar("delta-fast.a.ratio", 2),
    Bar("delta-fast.b5.ratio", 4),
    Bar("delta-fast.flat", 2, at_most=True),
    Bar("delta-fast.d.scan_ratio", 1.5, at_most=True),
    Bar("iceberg-fast.a.ratio", 3),
    Bar("iceberg-fast.b5.ratio", 15),
    Bar("iceberg-fast.flat", 2, at_most=True),
    Bar("iceberg-fast.d.scan_ratio", 1.5, at_most=True),
]


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """The cases of ``--cases`` for each form, ``--rows`` being the million."""
    forms = [
        (target, profile)
        for target, profile in FORMS
        if options.target in (None, target) and options.profile in (None, profile)
    ]
    report = Report(len(forms))
    document: dict[str, Any] = {"rows": options.rows, "cases": options.cases, "runs": options.repeat}
    for target, profile in forms:
        with report.step(f"{target}, profile {profile}") as step:
            found = _measure_applies(options, folder, target, profile, jars.ensure(target, step=step), step)
            if {"b1", f"b{SIZES[-1]}"} <= set(found):
                found["flat"] = round(found[f"b{SIZES[-1]}"]["ours_s"] / found["b1"]["ours_s"], 2)
            document[f"{target}-{profile}"] = found
            step.done(", ".join(f"{name} {one['ratio']}" for name, one in found.items() if "ratio" in dict_of(one)))
    document["load"] = machine.load()
    print(f"\n{table(document)}")
    print(f"\nLoad average at the end: {document['load']}. Figures count only from a machine that does nothing else.")
    return document, [bar for bar in BARS if bar.name.split(".")[0] in document]


def _measure_applies(
    options: argparse.Namespace, folder: Path, target: str, profile: str, jars_: list[Path], step: Step
) -> dict[str, Any]:
    scratch, file = folder / "apply", folder / "apply.json"
    given = {
        "target": target, "profile": profile, "folder": str(scratch), "jars": [str(jar) for jar in jars_], "memory": "6g",
        "million": options.rows, "repeat": options.repeat, "cases": options.cases, "sizes": options.sizes, "tables": options.tables or SMALL_TABLES,
        "batches": options.batches or BATCHES,
    }  # fmt: skip
    file.write_text(json.dumps(given))
    log, line = folder / "apply.log", ""
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "dev.benchmarks.programs.run_apply", str(file)], cwd=paths.ROOT, text=True, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):  # fmt: skip
        for line in process.stdout or ():
            if line.startswith("progress"):
                step.progress(line.removeprefix("progress").strip())
    shutil.rmtree(scratch, ignore_errors=True)
    if process.returncode:
        tail = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-15:])
        raise Problem(f"The measured process ended with {process.returncode}:\n{tail}")
    found: dict[str, Any] = json.loads(line)
    return found


def table(document: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{'':<34}{'ours, s':>10}{'plain, s':>10}{'ratio':>8}{'CPU s':>10}{'plain':>10}"]
    for form, found in document.items():
        for name, one in found.items() if isinstance(found, dict) else ():
            if "ratio" in dict_of(one):
                lines.append(
                    f"{form + ' ' + TITLES.get(name[0], name) + name[1:]:<34}{one['ours_s']:>10.2f}{one['plain_s']:>10.2f}"
                    f"{one['ratio']:>8.1f}{one['ours_cpu_s']:>10.2f}{one['plain_cpu_s']:>10.2f}"
                )
    for form, found in document.items():
        if isinstance(found, dict) and "d" in found:
            d = found["d"]
            lines.append(
                f"{form}: {d['batches']} batches in {d['apply_s']} s; one took {d['first_s']} s at first, {d['last_s']} s at the end; "
                f"maintained {d['maintained']} times in {d['maintain_s']} s; "
                f"a scan takes {d['scan']['end_s']} s, of a new copy {d['scan']['copy_s']} s ({d['scan_ratio']})"
            )
    return "\n".join(lines)


TITLES = {"a": "a: as many as rows", "b": "b: 1 % of a million, ", "c": "c: small tables", "e": "e: by a rule,"}


def dict_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
