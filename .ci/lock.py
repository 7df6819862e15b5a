"""Write requirements.lock, with the SHA-256 of every file that each release consists of.

Versions in the present lock are kept as far as pyproject.toml allows; `--upgrade` takes the newest.
What torch needs only where it is built for CUDA goes into requirements-cuda.lock: a build for the
CPU alone, as an index of one's own may have, does not need it.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

LOCK, CUDA_LOCK = Path("requirements.lock"), Path("requirements-cuda.lock")
CUDA = re.compile(r"(nvidia|cuda|triton)\b")  # names of torch's packages for CUDA


def main() -> None:
    before = entries(LOCK.read_text()) if LOCK.exists() else {}
    resolved = entries(resolve(sys.argv[1:]))
    for name, lines in resolved.items():
        if name == "torch":
            # Other builds of the same version count too: those listed before, and the one here.
            known = before.get(name, [""])[1:] if before.get(name, [""])[0] == lines[0] else []
            lines[1:] = sorted({*lines[1:], *known, f"--hash=sha256:{installable(lines[0])}"})
    write(LOCK, {name: lines for name, lines in resolved.items() if not CUDA.match(name)})
    write(CUDA_LOCK, {name: lines for name, lines in resolved.items() if CUDA.match(name)})


def resolve(options: list[str]) -> str:
    """Return all requirements with their hashes; the build system's too, which pip would fetch."""
    project = tomllib.loads(Path("pyproject.toml").read_text())
    command = (
        "uv pip compile - pyproject.toml --all-extras --universal --python-version 3.11 --quiet "
        f"--generate-hashes --no-annotate --no-header --no-emit-index-url -o {LOCK}"
    )
    build = "\n".join([*project["build-system"]["requires"], "editables"])  # for install -e
    subprocess.run([*command.split(), *options], input=build, text=True, check=True)
    return LOCK.read_text()


def entries(lock: str) -> dict[str, list[str]]:
    """Return by name and version each requirement and its hashes."""
    found = {}
    for entry in re.split(r"\n(?=\S)", lock.strip()):
        requirement, *hashes = [line.strip(" \\") for line in entry.splitlines()]
        if "== 'emscripten'" in requirement:  # of Python in a browser
            continue
        name = requirement.partition("==")[0]
        found[name if name not in found else requirement] = [requirement, *hashes]
    return found


def installable(requirement: str) -> str:
    """Return the hash of the file that pip would install here."""
    command = "pip install --quiet --dry-run --ignore-installed --no-deps --report -"
    report = subprocess.run(
        [sys.executable, "-m", *command.split(), requirement], capture_output=True, check=True
    )
    archive = json.loads(report.stdout)["install"][0]["download_info"]["archive_info"]
    return str(archive["hashes"]["sha256"])


def write(file: Path, requirements: dict[str, list[str]]) -> None:
    file.write_text("".join(" \\\n    ".join(lines) + "\n" for lines in requirements.values()))


if __name__ == "__main__":
    main()
