"""Suggests the name that a person may have meant by an unknown one.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import difflib
import string
from collections.abc import Collection, Iterable, Sequence


def suggest_names(name: str, valid: Iterable[str]) -> str:
    """Suggest the name that a person may have meant, and list the valid ones.

    >>> suggest_names("custmer", ["id", "customer"])
    "did you mean 'customer'? Valid names are: id, customer"
    """
    names = list(valid)
    lower = {n.lower(): n for n in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    hint = f"did you mean {lower[near[0]]!r}? " if near else ""
    return f"{hint}Valid names are: {', '.join(names)}"


def describe_unknown_name(name: str, valid: Sequence[str]) -> str:
    """Say that a name is not known, with the nearest one and all that are.

    >>> describe_unknown_name("histroy", ["log", "history"])
    "'histroy' is not known; did you mean 'history'? Valid names are: log, history"
    """
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"{name!r} is not known{hint} Valid names are: {', '.join(valid)}"


def wrong_names(text: str, valid: Sequence[str], exact: Collection[str] = ()) -> list[str]:
    """List the errors of the names in the braces of a text.

    :param exact: names that are filled in as they are, and are not cut or filled up
    """
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as e:
        return [f"{text!r} is not a valid template: {e}"]
    wrong = [describe_unknown_name(name, valid) for _, name, _, _ in parts if name is not None and name not in valid]
    formed = [name for _, name, form, how in parts if name in exact and (form or how)]
    wrong += [f"{{{name}}} cannot have a format or a conversion: write only the name in the braces" for name in formed]
    return wrong or _unfit_forms(text, valid)


def _unfit_forms(text: str, valid: Iterable[str]) -> list[str]:
    """List the errors of forms behind the names in braces that are none of a text, such as ``{table:d}``."""
    try:
        text.format(**dict.fromkeys(valid, "x"))
    except (KeyError, IndexError, ValueError) as e:
        return [f"{text!r} is not a valid template: {e}"]
    return []


def names_in(text: str) -> set[str]:
    """List the names in the braces of a text that :func:`wrong_names` has nothing against."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
