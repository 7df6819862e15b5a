"""Fuzz one reader: python fuzz/one.py READER [options of libFuzzer]."""

import sys

import atheris

with atheris.instrument_imports(
    include=["orbithash", "PIL", "zipfile"], exclude=["orbithash.kernels", "orbithash.networks"]
):
    from readers import READERS, accepted


def main() -> None:
    name, read = sys.argv[1], READERS[sys.argv[1]]
    atheris.Setup([name, *sys.argv[2:]], lambda content: accepted(lambda: read(content)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
