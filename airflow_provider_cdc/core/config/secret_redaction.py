"""Finds secrets in configurations: by the names of settings, and by the form of texts.

Everything that is shown or stored passes through here, so that a password in a URL is as safe as one in a separate field.

    >>> strip_credentials("database.url", "jdbc:oracle:thin:scott/tiger@//db:1521/ORCL")
    'jdbc:oracle:thin:@//db:1521/ORCL'
    >>> strip_credentials("changelog", "sftp://cdc:sesame@lake/changelog")
    'sftp://lake/changelog'
    >>> secret_options({"key": "AKIA", "client_kwargs": {"aws_secret_access_key": "sesame", "region_name": "eu"}})
    ['client_kwargs.aws_secret_access_key']

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_SECRET: Final = re.compile(
    r"pass(word|wd|phrase)|pwd|secret|credential|token|jaas|authorization|cookie|connection[._-]?string"
    r"|(private|account|shared|customer|encryption|api|sas|storage)[._-]?key|key[._-]?pem$|\bpkey$|\bauth$|keystore\.key$|signature"
)
_CONNECT: Final = re.compile(r"(^|[._-])(url|uri|dsn|descriptor|hostname|host|servers|nodes|string)$")
"""Names of settings that hold addresses, which may contain a login."""
_USERINFO: Final = re.compile(r"(?<=://)[^/?#@\s:]*:")
_SCHEME: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.:-]*://")
_ORACLE: Final = re.compile(r"\s*(?:jdbc:oracle:\w+:)?(?P<user>[^@()/\s:]+)/", re.IGNORECASE)
_ORACLE_PART: Final = re.compile(r"\"[^\"]*\"|[()]")
"""A quoted text, which may hold parentheses, or the parenthesis at which an address begins."""
_PAIR: Final = re.compile(r"\s*(?!jdbc:)(?P<user>[^@()/\s:]*):(?P<secret>[^@()\s]*)@", re.IGNORECASE)
_SETTING: Final = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)\s*=\s*(?P<secret>\"[^\"]*\"|'[^']*'|[^;&,()\s\"']+)")
_NO_SECRET: Final = {"", "anon", "anonymous", "google_default", "cloud", "cache", "browser", "none", "false", "true"}
"""Values of fsspec options for tokens that are not secret."""


def is_secret_name(name: str) -> bool:
    """Return whether the value of a setting of this name must never be shown.

    >>> is_secret_name("sasl.password"), is_secret_name("ssl.key.location")
    (True, False)
    """
    return _SECRET.search(name.lower()) is not None


def find_credentials(name: str, value: Any) -> list[str]:
    """Find the secrets within a setting's texts, without those that its name makes secret as a whole."""
    return [secret for text in _texts(value) for _, _, secret in _find_secrets(name, text)]


def strip_credentials(name: str, value: Any) -> Any:
    """Return the same value without the credentials in its texts."""
    if isinstance(value, str):
        for start, end, _ in sorted(_find_secrets(name, value), reverse=True):
            value = value[:start] + value[end:]
        return value
    if isinstance(value, Mapping):
        return {key: strip_credentials(name, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(strip_credentials(name, item) for item in value)
    return value


def secret_values(options: Mapping[str, Any]) -> list[str]:
    """Return the texts of options, at any depth, that must never be shown."""
    secrets: list[str] = []
    for name, value in options.items():
        if is_secret_name(str(name)) and _holds(value):
            secrets += _texts(value)
        elif isinstance(value, Mapping):
            secrets += secret_values(value)
        else:
            secrets += find_credentials(str(name), value)
    return secrets


def secret_options(options: Mapping[str, Any], above: str = "") -> list[str]:
    """Names of options, below each other with dots between them, that hold a secret."""
    names = []
    for name, value in options.items():
        path = f"{above}{name}"
        if is_secret_name(str(name)) and _holds(value):
            names.append(path)
        elif isinstance(value, Mapping):
            names += secret_options(value, f"{path}.")
        elif find_credentials(str(name), value):
            names.append(path)
    return names


def _find_secrets(name: str, text: str) -> Iterator[tuple[int, int, str]]:
    """Return the part to cut out of a text, and the secret in it.

    The time is linear in the text's length: users of the pages send such texts, and a regular expression holds the interpreter's lock.
    """
    url, connects = _SCHEME.match(text) is not None, _CONNECT.search(name.lower()) is not None
    yield from _find_userinfo(text)
    if connects and not url:
        yield from _find_login(text)
    if connects or url:
        for setting in _SETTING.finditer(text):
            if is_secret_name(setting["name"]):
                yield setting.start("secret"), setting.end("secret"), setting["secret"].strip("\"'")


def _find_userinfo(text: str) -> Iterator[tuple[int, int, str]]:
    """Find ``user:secret@`` behind ``://``; the secret ends at the last ``@`` before a blank."""
    for word in re.finditer(r"\S+", text):
        end = text.rfind("@", *word.span())
        if end >= 0 and (user := _USERINFO.search(text, word.start(), end)):
            yield user.start(), end + 1, text[user.end() : end]


def _find_login(text: str) -> Iterator[tuple[int, int, str]]:
    """Find the login at the beginning of an address that is no URL: ``user/secret@`` or ``user:secret@``."""
    if user := _ORACLE.match(text):
        address = (part.start() for part in _ORACLE_PART.finditer(text, user.end()) if part[0] in "()")
        end = text.rfind("@", user.end(), next(address, len(text)))
        if end >= 0:
            start = user.start("user")
            yield start, end + (not start), text[user.end() : end]
            return
    if pair := _PAIR.match(text):
        start = pair.start("user")
        yield start, pair.end() - bool(start), pair["secret"]


def _holds(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return False
    return not (isinstance(value, str) and value.strip().lower() in _NO_SECRET)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            yield from _texts(item)
