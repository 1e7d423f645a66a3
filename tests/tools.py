"""The Python packages that the tests use, in one place, at pinned versions."""

import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
PINS = ROOT / "tests/requirements.txt"
PLACE = ROOT / "target/tools/python"


def programs():
    """The directory with python and the packages' programs, made where it is missing or the pins have changed."""
    stamp = PLACE / PINS.name
    if not stamp.exists() or stamp.read_bytes() != PINS.read_bytes():
        try:
            venv.create(PLACE, with_pip=True, clear=True)
        except subprocess.CalledProcessError:
            sys.exit("python3 cannot make a venv: install the package python3-venv")
        pip = [PLACE / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--requirement", PINS], check=True)
        stamp.write_bytes(PINS.read_bytes())
    return PLACE / "bin"
