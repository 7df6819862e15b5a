"""`python -m orbithash` is the `orbithash` command."""

from orbithash.cli import main

main()
