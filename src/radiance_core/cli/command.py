"""How every program of ours ends: with a status, and with one line about what went wrong."""

import errno
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from radiance_abi.errors import RadianceError
from radiance_core.cli.entry import INTERRUPTED
from radiance_core.config import hold_back_matrix_threads

EXIT_ERROR = 1
EXIT_USAGE = 2
_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def run_command(
    command: click.Command, program: str, arguments: Sequence[str] | None = None
) -> NoReturn:
    """Run a command and exit; an error of ours is one line on standard error.

    Args:
        command: returns or exits with a status, or raises what is wrong.
        program: its name, for the line.
        arguments: of the command line; None takes the process's own.
    """
    hold_back_matrix_threads()
    try:
        status = command.main(arguments, standalone_mode=False)
        sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except RadianceError as error:
        click.echo(f"{program}: {error}", err=True)
        sys.exit(EXIT_ERROR)
    except OSError as error:
        if error.errno not in _UNWRITTEN:
            raise
        click.echo(f"{program}: standard output: {error.strerror}", err=True)
        # What is left in the buffer would be tried again at the end, with a trace.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_ERROR)
