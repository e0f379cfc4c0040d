"""The prompt of ``radiance run``: an argument, or what standard input holds."""

import sys

from radiance_abi.errors import ConfigurationError


def prompt_text(argument: str | None) -> str | None:
    """Return the prompt; None when there is none.

    Args:
        argument: as given; ``-`` reads standard input whole, and so does None unless that is a
            terminal. The line end that the input ends with is no part of the prompt.

    Raises:
        ConfigurationError: standard input is no UTF-8.
    """
    if argument not in {None, "-"}:
        return argument
    if argument is None and sys.stdin.isatty():
        return None
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n") or None
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"prompt: expected UTF-8 on standard input, got a bad byte at offset {error.start}"
        ) from error
