"""Packages of Debian and its relatives: installed on the system as root, or unpacked into a folder by any user."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.bootstrap.report import Problem, Step

DEBIAN = "http://deb.debian.org/debian"
KEYRINGS = ("/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp")
POLICY = Path("/usr/sbin/policy-rc.d")
NOT_NEEDED = re.compile(
    r"(perl|perl-.*|libperl.*|lib.*-perl|debconf|dpkg|tar|adduser|passwd|login|init-system-helpers|sysvinit.*|ssl-cert|openssl|"
    r"libllvm.*|libz3.*|mount|util-linux.*|coreutils|base-.*|locales|psmisc|lsof|gawk|sed)"
)
LIBC = re.compile(r"(libc6|libc-bin|libc-l10n)")


def may_install() -> bool:
    """Check whether packages can be installed on this system without a question: as root, with apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def is_known(package: str) -> bool:
    """Check whether the system's package lists have a version of this package."""
    output = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True, env=_environment()).stdout
    return "Candidate:" in output and "Candidate: (none)" not in output


def install(packages: list[str], step: Step) -> None:
    """Install packages on the system. No service is started: a policy script forbids it during the installation."""
    if not all(is_known(package) for package in packages):
        step.run(["apt-get", "update"], title="apt-get update", env=_environment())
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    what = f"apt-get install {' '.join(packages)}"
    with _no_services():
        try:
            step.run(command, title=what, env=_environment())
        except Problem:  # most often the lists are older than what the mirror still has
            step.run(["apt-get", "update"], title="apt-get update", env=_environment())
            step.run(command, title=what, env=_environment())


@contextmanager
def _no_services() -> Iterator[None]:
    """Debian asks this script before it starts a service; 101 means no. A script that is already there stays."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def unpack(packages: list[str], target: Path, step: Step, *, suite: str | None = None) -> None:
    """Unpack packages and the libraries they need into ``target``; needs no root and changes nothing on the system.

    Without ``suite`` they come from the sources this system is set up for and use its libc; with a Debian suite
    (``sid``) they come from there and bring their own libc. Either way apt checks the archive's signatures.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            raise Problem(f"{' '.join(packages)} cannot be fetched: this needs {tool} (Debian, Ubuntu).")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as name:
        folder = Path(name)
        options = _private_state(folder / "apt", suite)
        env = _environment()
        step.run(["apt-get", *options, "update"], title="reading package lists", env=env)
        plan = step.run(["apt-get", *options, "install", "-s", *packages], title="choosing packages", env=env)
        names = sorted({line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")})
        names = [name for name in names if not NOT_NEEDED.fullmatch(name) and (suite or not LIBC.fullmatch(name))]
        debs = folder / "debs"
        debs.mkdir()
        step.run(["apt-get", *options, "download", *names], title="fetching packages", env=env, cwd=debs)
        root = folder / "root"
        for deb in sorted(debs.glob("*.deb")):
            step.run(["dpkg-deb", "-x", deb, root], title=f"unpacking {deb.name}")
        if target.exists():
            shutil.rmtree(target)
        root.rename(target)


def _private_state(folder: Path, suite: str | None) -> list[str]:
    """Options that give apt an empty private state (so it believes nothing is installed) and nothing else."""
    for name in ("lists/partial", "archives/partial", "sources.list.d"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    settings = {
        "Dir::State": folder,
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder,
        "Dir::Cache::archives": folder / "archives",
        "Acquire::Languages": "none",
        "APT::Install-Recommends": "false",
        "APT::Update::Post-Invoke": "",
    }
    if os.geteuid() == 0:
        settings["APT::Sandbox::User"] = "root"
    if suite:
        sources = folder / "sources.list"
        sources.write_text(f"deb [signed-by={_keyring()}] {_mirror()} {suite} main\n")
        settings["Dir::Etc::sourcelist"] = sources
        settings["Dir::Etc::sourceparts"] = folder / "sources.list.d"
        settings["Dir::Etc::preferencesparts"] = folder / "sources.list.d"
        settings["Acquire::Check-Valid-Until"] = "false"  # mirrors of a moving suite are now and then a few days behind
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def _keyring() -> str:
    for path in KEYRINGS:
        if Path(path).exists():
            return path
    raise Problem("The keys of the Debian archive are missing. Install them: apt-get install debian-archive-keyring")


def _mirror() -> str:
    """The Debian mirror this system uses, or the public one."""
    if not re.search(r"^ID=\"?debian\"?$", Path("/etc/os-release").read_text(), re.MULTILINE):
        return DEBIAN
    folder = Path("/etc/apt")
    files = [
        *sorted(folder.glob("sources.list.d/*.sources")),
        *sorted(folder.glob("sources.list.d/*.list")),
        folder / "sources.list",
    ]
    for file in files:
        text = file.read_text() if file.exists() else ""
        for match in re.finditer(
            r"^(?:URIs:|deb\s+(?:\[[^\]]*\]\s+)?)\s*(https?://\S+/debian/?)\s", text, re.MULTILINE
        ):
            return match[1]
    return DEBIAN


def _environment() -> dict[str, str]:
    return {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
