"""The process that renders chat templates: one request a line in, one answer a line out.

Run by `template_process`; it may be killed at any time. Requests and answers are JSON objects:

    (started)                                        -> {"ok": true}
    {"op": "load", "source": ...}                    -> {"ok": true, "facts": ...}
    {"op": "render", "variables": ..., "seconds": s} -> {"ok": true, "text": ...}
    anything that fails                              -> {"ok": false, "kind": ..., "text": ...}
"""

import json
import os
import re
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import BinaryIO

from jinja2 import Template, TemplateSyntaxError, UndefinedError
from jinja2.exceptions import SecurityError

from radiance_core.text.errors import TemplateError
from radiance_core.text.template_env import RefusedByTemplateError, template_environment
from radiance_core.text.template_source import read_template

_MEMORY_BYTES = 512 << 20
_STARTUP_LIMIT_SECONDS = 30
_MAX_ERROR_CHARS = 2000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class _TooLargeError(Exception):
    """The rendered text passed the size limit."""


def _render(template: Template, variables: Mapping[str, object], max_chars: int) -> str:
    """Render piece by piece, so that endless output stops at the limit and not at memory."""
    pieces: list[str] = []
    room = max_chars
    for piece in template.generate(**variables):
        room -= len(piece)
        if room < 0:
            raise _TooLargeError(f"more than {max_chars} characters")
        pieces.append(piece)
    return "".join(pieces)


def _failure(error: BaseException) -> dict[str, object]:
    """Say what went wrong in one of the words that ``TemplateError.kind`` knows."""
    match error:
        case TemplateError():
            return {"ok": False, "kind": error.kind, "message": str(error)}
        case RefusedByTemplateError():
            kind = "raised"
        case TemplateSyntaxError():
            kind = "syntax"
        case SecurityError():
            kind = "forbidden"
        case OverflowError() if "Range too big" in str(error):
            kind = "forbidden"
        case UndefinedError():
            kind = "undefined"
        case _TooLargeError():
            kind = "too_large"
        case MemoryError():
            return {"ok": False, "kind": "too_large", "text": "out of memory"}
        case _:
            kind = "failed"
    text = "recursion without end" if isinstance(error, RecursionError) else str(error)
    # Addresses in an object's default text are nobody's business.
    text = _ADDRESS.sub("", text)[:_MAX_ERROR_CHARS]
    return {"ok": False, "kind": kind, "text": text or type(error).__name__}


def _limit_time(seconds: float) -> None:
    """Have the kernel end this process should nobody end it after so long.

    The parent kills at its own limit; this is for a process whose parent has died. Neither signal
    has a handler, so a long call into C is no shelter.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds + 1)
    _limit_cpu(seconds)


def _limit_cpu(seconds: float) -> None:
    """Let this process use so much more processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 2
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


class _Worker:
    """The loaded template and the answers to requests about it."""

    def __init__(self) -> None:
        self._environment = template_environment()
        self._template: Template | None = None

    def answer(self, request: Mapping[str, object]) -> dict[str, object]:
        """Do one request; whatever a template can raise becomes an answer."""
        try:
            _limit_time(float(str(request["seconds"])))
            if request["op"] == "load":
                source = str(request["source"])
                facts = read_template(source)
                # Compiling folds constants, which runs some of the template.
                self._template = self._environment.from_string(source)
                return {"ok": True, "facts": asdict(facts) | {"variables": [*facts.variables]}}
            assert self._template is not None, "the parent loads before it renders"
            variables = request["variables"]
            assert isinstance(variables, dict), "the parent sends an object"
            text = _render(self._template, variables, int(str(request["max_chars"])))
            return {"ok": True, "text": text}
        except Exception as error:  # a template can raise anything
            return _failure(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def main(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the parent closes its end."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_cpu(_STARTUP_LIMIT_SECONDS)
    worker = _Worker()
    answers.write(b'{"ok": true}\n')
    answers.flush()
    for line in requests:
        answer = json.dumps(worker.answer(json.loads(line)))
        answers.write(answer.encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    # Nothing that runs here may write into the stream of answers by printing.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    main(sys.stdin.buffer, out)
