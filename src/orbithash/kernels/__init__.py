"""Compiled loops, each beside its plain reference."""
