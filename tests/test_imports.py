"""What an import or a short command loads: counted, since times depend on the machine."""

import json
import subprocess
import sys

HEAVY = {"torch", "numba", "sklearn", "scipy", "matplotlib"}
# Modules beyond those of a bare interpreter; lower these when less is loaded.
MOST_FOR_IMPORT = 100  # 86 now, nearly all of them for importlib.metadata.version
MOST_FOR_HELP = 350  # 333 now, of which rich, markdown_it and pygments are 141


def test_importing_the_package_loads_little():
    loaded = loaded_by("import orbithash")
    assert not loaded & {*HEAVY, "PIL", "numpy"}
    assert len(loaded) <= MOST_FOR_IMPORT


def test_help_loads_little():
    loaded = loaded_by(
        "import runpy",
        "sys.argv = ['orbithash', '--help']",
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as shown:",
        "    runpy.run_module('orbithash', run_name='__main__')",
        "assert 'search' in shown.getvalue()",
    )
    assert not loaded & HEAVY
    assert len(loaded) <= MOST_FOR_HELP


def loaded_by(*lines: str) -> set[str]:
    """The modules that a program loads in a fresh interpreter."""
    program = "\n".join(
        [
            "import contextlib, io, json, sys",
            "before = set(sys.modules)",
            *lines,
            "print(json.dumps(sorted(set(sys.modules) - before)))",
        ]
    )
    return set(json.loads(subprocess.check_output([sys.executable, "-c", program])))
