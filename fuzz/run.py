"""Fuzz every reader for some seconds each, and print what was tried and found.

    python fuzz/run.py SECONDS [READER...]

Content that is a fault is kept in build/fuzz: make a test of it. Exits with 1 if there is any.
"""

import re
import subprocess
import sys
from pathlib import Path

from readers import READERS, seeds

FOUND = Path("build/fuzz")
SECONDS_AND_MEGABYTES = ["-timeout=20", "-rss_limit_mb=4000"]  # for one content, and altogether


def main() -> None:
    seconds, names = sys.argv[1], sys.argv[2:] or list(READERS)
    n_faults = 0
    for name in names:
        corpus = FOUND / name
        corpus.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(seeds(name)):
            (corpus / f"seed-{number}").write_bytes(content)
        found = subprocess.run(
            [
                *(sys.executable, str(Path(__file__).with_name("one.py")), name, str(corpus)),
                *(f"-max_total_time={seconds}", f"-artifact_prefix={FOUND}/{name}-"),
                *SECONDS_AND_MEGABYTES,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        n_faults += found.returncode != 0
        tried = re.findall(r"^#(\d+)", found.stdout, re.MULTILINE)
        print(f"{name:12} {int(tried[-1]) if tried else 0:>8,} contents", end="  ", flush=True)
        print("no fault" if found.returncode == 0 else fault(found.stdout), flush=True)
    sys.exit(bool(n_faults))


def fault(printed: str) -> str:
    """Return the exception and where its content is."""
    lines = [line.strip() for line in printed.splitlines()]
    told = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b|==\d+== ?ERROR", line)]
    kept = [line.rpartition(" ")[2] for line in lines if "Test unit written to" in line]
    return "FAULT " + " ".join([*(told[:1] or lines[-3:]), *kept[:1]])


if __name__ == "__main__":
    main()
