"""The parent's side of the template process: start, ask within a time, kill, start again.

One file, because both directions of the talk and its end have one state.
"""

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from radiance_core.text.errors import TemplateError
from radiance_core.text.template_facts import TemplateFacts

_START_SECONDS = 30.0
_LOAD_SECONDS = 2.0
# An answer is JSON with escapes: up to twelve characters for one outside the first plane.
_ANSWER_BYTES_PER_CHAR = 12
_READ_BYTES = 1 << 16


RENDER_SECONDS = 2.0
MAX_CHARS = 4 << 20


class TemplateProcess:
    """One killable process that holds one template. Calls from several threads take turns.

    Args:
        seconds: time limit of one render.
        max_chars: size limit of one rendered text.
    """

    def __init__(self, seconds: float = RENDER_SECONDS, max_chars: int = MAX_CHARS) -> None:
        self._seconds = seconds
        self._max_chars = max_chars
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._facts: TemplateFacts | None = None
        self._started = False
        self._loaded = False
        self._closed = False

    def start(self) -> None:
        """Start the process without waiting for it. Returns within milliseconds."""
        with self._lock:
            if self._child is None and not self._closed:
                self._spawn()

    def load(self, source: str) -> TemplateFacts:
        """Return what a template says of itself; the process then holds it. Blocks as renders do.

        Raises:
            TemplateError: it is too long, nested too deep, or no template.
        """
        with self._lock:
            if self._facts is None:
                self._ready(source)
            assert self._facts is not None, "loading gives the facts"
            return self._facts

    def render(self, source: str, variables: Mapping[str, object]) -> str:
        """Return the rendered text. Blocks for at most the limit, plus starting and turns.

        Raises:
            TemplateError: with the ``kind`` that says what happened.
        """
        with self._lock:
            self._ready(source)
            request = {
                "op": "render",
                "variables": variables,
                "seconds": self._seconds,
                "max_chars": self._max_chars,
            }
            answer = self._ask(request, self._seconds, "render")
        return str(answer["text"])

    def close(self) -> None:
        """End the process. Rendering afterwards is an error of ours."""
        with self._lock:
            self._closed = True
            self._kill()

    @property
    def pid(self) -> int | None:
        """Process id of the child, ``None`` while there is none."""
        return None if self._child is None else self._child.pid

    def _spawn(self) -> None:
        # -P keeps the working directory off the path of a process that runs strangers' programs;
        # a process group of its own keeps the terminal's Ctrl-C from it.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "radiance_core.text.template_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        assert self._child.stdout is not None, "asked for a pipe"
        assert self._child.stdin is not None, "asked for a pipe"
        os.set_blocking(self._child.stdout.fileno(), False)
        os.set_blocking(self._child.stdin.fileno(), False)
        self._started = self._loaded = False

    def _ready(self, source: str) -> None:
        """Have a process with the template loaded."""
        assert not self._closed, "rendering after close"
        if self._child is not None and self._child.poll() is not None:
            self._kill()
        if self._child is None:
            self._spawn()
        if not self._loaded:
            request = {"op": "load", "source": source, "seconds": _LOAD_SECONDS}
            self._await_start()
            self._facts = _facts(self._ask(request, _LOAD_SECONDS, "load")["facts"])
            self._loaded = True

    def _await_start(self) -> None:
        if self._started:
            return
        try:
            self._exchange(b"", _START_SECONDS, "start")
        except TemplateError:
            self._kill()
            raise
        self._started = True

    def _ask(
        self, request: Mapping[str, object], seconds: float, doing: str
    ) -> Mapping[str, object]:
        """Send a request and return its answer; a process that does not answer is killed."""
        try:
            line = json.dumps(request).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as err:
            raise TemplateError(
                f"chat template: {doing}: expected messages and tools of plain JSON, got {err}; "
                "correct the request.",
                "message",
            ) from err
        try:
            answer: dict[str, object] = json.loads(self._exchange(line, seconds, doing))
        except TemplateError:
            self._kill()
            raise
        if not answer["ok"]:
            raise _failure(doing, answer)
        return answer

    def _exchange(self, line: bytes, seconds: float, doing: str) -> bytes:
        """Write a line and read a line before the time is up."""
        assert self._child is not None, "the process is ready"
        assert self._child.stdin is not None, "asked for a pipe"
        assert self._child.stdout is not None, "asked for a pipe"
        until = time.monotonic() + seconds
        to_child, from_child = self._child.stdin.fileno(), self._child.stdout.fileno()
        unsent, got = memoryview(line), bytearray()
        limit = self._max_chars * _ANSWER_BYTES_PER_CHAR + _READ_BYTES
        with selectors.DefaultSelector() as selector:
            selector.register(from_child, selectors.EVENT_READ)
            if unsent:
                selector.register(to_child, selectors.EVENT_WRITE)
            while not got.endswith(b"\n"):
                events = selector.select(max(0.0, until - time.monotonic()))
                if not events:
                    raise TemplateError(
                        f"chat template: {doing}: expected to end within {seconds:g} s, it did "
                        "not; shorten the conversation, or give the model another template.",
                        "timeout",
                    )
                for key, _ in events:
                    if key.fd == to_child:
                        unsent = unsent[_write(to_child, unsent, doing) :]
                        if not unsent:
                            selector.unregister(to_child)
                    else:
                        got += _read(from_child, doing)
                if len(got) > limit:
                    raise _died(doing)
        return bytes(got)

    def _kill(self) -> None:
        if self._child is None:
            return
        self._child.kill()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None, "asked for a pipe"
            pipe.close()
        self._child.wait()
        self._child = None


def _write(fd: int, data: memoryview, doing: str) -> int:
    try:
        return os.write(fd, data[:_READ_BYTES])
    except BlockingIOError:
        return 0
    except OSError as err:
        raise _died(doing) from err


def _read(fd: int, doing: str) -> bytes:
    try:
        data = os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return b""
    except OSError as err:
        raise _died(doing) from err
    if not data:
        raise _died(doing)
    return data


def _died(doing: str) -> TemplateError:
    return TemplateError(
        f"chat template: {doing}: expected a text, the template process ended instead (out of "
        "memory or processor time); shorten the conversation, or give the model another template.",
        "too_large",
    )


_WHAT_HAPPENED = {
    "raised": "the template refuses this conversation",
    "syntax": "expected a jinja2 template, it is not",
    "forbidden": "the template reaches for what it may not have",
    "undefined": "the template needs a value that is not there",
    "too_large": "the text is larger than a prompt may be",
    "failed": "the template failed",
}


def _facts(told: object) -> TemplateFacts:
    assert isinstance(told, dict), "the process tells an object"
    return TemplateFacts(**told | {"variables": frozenset(told["variables"])})


def _failure(doing: str, answer: Mapping[str, object]) -> TemplateError:
    """Turn a failure that the process reports into the error to raise."""
    if "message" in answer:
        return TemplateError(str(answer["message"]), str(answer["kind"]))
    kind, said = str(answer["kind"]), str(answer["text"])
    if kind == "raised":
        return TemplateError(
            f"chat template: {_WHAT_HAPPENED[kind]}: {said} Change the messages to what it takes.",
            kind,
            said,
        )
    return TemplateError(
        f"chat template: {doing}: {_WHAT_HAPPENED[kind]}: {said}; change the "
        "conversation, or give the model another template.",
        kind,
    )
