"""Java, which Spark runs on."""

import os
import re
import shutil
import subprocess

from dev.bootstrap import apt
from dev.bootstrap.report import Problem, Step

OLDEST = 17
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")


def ensure(step: Step) -> None:
    """Check that the Java which Spark will use is new enough; as root on Debian and the like, install it."""
    version = _version()
    if version < OLDEST and apt.may_install():
        apt.install([_package()], step)
        version = _version()
    if version < OLDEST:
        found = f"Java {version} is too old" if version else "there is no Java"
        place = "at JAVA_HOME" if os.environ.get("JAVA_HOME") else "on PATH"
        raise Problem(
            f"Spark needs Java {OLDEST} or newer; {found} {place}.\n"
            f"Install it (Debian, Ubuntu: apt-get install {PACKAGES[0]}) and run dev/setup again."
        )
    step.done(f"Java {version}")


def _version() -> int:
    """The major version; 0 when there is none."""
    home = os.environ.get("JAVA_HOME")
    binary = f"{home}/bin/java" if home else shutil.which("java")
    try:
        text = subprocess.run([binary or "java", "-version"], capture_output=True, text=True, timeout=60).stderr
    except OSError:
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _package() -> str:
    return next((name for name in PACKAGES if apt.is_known(name)), PACKAGES[0])
