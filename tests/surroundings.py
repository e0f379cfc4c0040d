"""What the shell that tests are run from may want, and nothing printed may depend on."""

WISHES = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "TTY_", "COLUMNS", "LINES")
"""Beginnings of variables by which a shell asks for colours and widths."""
