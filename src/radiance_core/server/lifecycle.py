"""The server's life: bind, load, serve, drain, end."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from radiance_core.engine.interface import Engine, TextModel
from radiance_core.log_events import get_logger
from radiance_core.server.app import App
from radiance_core.server.connection import Listener
from radiance_core.server.errors import unavailable
from radiance_core.server.ports import open_port
from radiance_core.server.settings import ServerSettings
from radiance_core.server.state import State

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FLUSH_S = 1.0
_HARD_EXIT_S = 0.8
_TOLD_S = 0.4  # of the hard exit's time, for streams to hear why they end
_log = get_logger("radiance.server")


class Server:
    """An HTTP server that is up before its model is.

    ``bind`` listens and answers ``/health`` with 503; ``attach`` gives it a model; ``drain`` ends
    it. ``run`` does all of it, signals included.

    Args:
        settings: what the operator set.
        version: the program's version, for ``/version`` and fingerprints.
        sockets: what ``ports.open_port`` returned; None to have ``bind`` open the port.
    """

    def __init__(
        self, settings: ServerSettings, version: str, sockets: list[socket.socket] | None = None
    ) -> None:
        self.settings = settings
        self.state = State(settings, version)
        self.port = settings.port
        self._sockets = sockets
        self._listener: Listener | None = None
        self._servers: list[asyncio.Server] = []
        self._stop = asyncio.Event()
        self._now = asyncio.Event()
        self._heard: list[int] = []
        self._exit_code = 0

    @property
    def url(self) -> str:
        """Where the server answers."""
        host = self.settings.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    async def bind(self) -> None:
        """Listen on the port and answer from now on, with 503 until there is a model.

        Raises: ``ConfigurationError`` for an open bind without a key, ``BindError`` for a port
        that cannot be had.
        """
        sockets = self._sockets or open_port(self.settings)
        self.port = sockets[0].getsockname()[1]
        self._listener = Listener(App(self.state).handle, self.settings)
        opened = self._listener.open
        self.state.num_connections = lambda: len(opened)
        loop = asyncio.get_running_loop()
        for each in sockets:
            self._servers.append(await loop.create_server(self._listener, sock=each))

    def attach(self, engine: Engine, model: TextModel) -> None:
        """Begin to serve a model."""
        self.state.attach(engine, model)

    def describe(
        self, facts: Mapping[str, object], graph: Callable[[], bytes] | None = None
    ) -> None:
        """Give what ``/server_info`` says beyond names and sampling; JSON without secrets.

        Args:
            facts: what is known of how the model was built.
            graph: makes what ``/graph`` says, as JSON text; from the second time on the same.
        """
        self.state.facts = facts
        self.state.graph = graph

    def fail(self, detail: str) -> None:
        """Say in ``/health`` that the model cannot be served."""
        self.state.enter("failed", detail)

    def stop(self) -> None:
        """Ask the server to drain and end, as SIGTERM does."""
        self._stop.set()

    async def run(
        self,
        load: Callable[[], Awaitable[tuple[Engine, TextModel]]],
        tell: Callable[[], None] = lambda: None,
    ) -> int:
        """Bind, load, serve until a signal, drain; return the exit status.

        Args:
            load: makes the engine and the model; cancelled when a signal comes first.
            tell: says that the model is served, called as soon as it is.

        Raises: what ``bind`` and ``load`` raise.
        """
        await self.bind()
        self._install_signals()
        loading = asyncio.ensure_future(load())
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({loading, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                self.attach(*loading.result())
                tell()
                await stopped
            elif signal.SIGINT in self._heard:
                self._exit_code = 128 + signal.SIGINT  # nothing was served: a start broken off
            await self.drain()
            return self._exit_code
        finally:
            await _end(loading, stopped)
            self._remove_signals()
            await self.close()

    async def drain(self) -> None:
        """Take nothing new, let running requests end, and tell those left that time is up."""
        self.state.enter("draining", "the server is shutting down")
        for server in self._servers:
            server.close()
        if self._listener is not None:
            self._listener.close_idle()
        limit = self.settings.drain_timeout_s
        hint = "a second Ctrl-C or SIGTERM stops now"
        _log.info("draining", requests=len(self.state.running), limit_s=limit, hint=hint)
        ending = asyncio.create_task(self._end_requests(limit))
        hurry = asyncio.create_task(self._now.wait())
        await asyncio.wait({ending, hurry}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            self._tell_running("server: it was told to stop at once.")
            await self._wait_answered(asyncio.get_running_loop().time() + _TOLD_S)
        await _end(ending, hurry)

    async def close(self) -> None:
        """End at once: whatever is still open is dropped."""
        for server in self._servers:
            server.close()
        if self._listener is not None:
            self._listener.abort_all()
            self._listener.stop_watching()
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_S):
                    await self._listener.shutdown(_FLUSH_S / 2)

    async def _end_requests(self, limit_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        draining = None
        if self.state.serving is not None:
            # The engine gets a little longer, so that it is we who tell the clients.
            draining = asyncio.create_task(self.state.serving.engine.drain(limit_s + _FLUSH_S))
        try:
            await self._wait_answered(deadline)
            self._tell_running(
                f"server: it is shutting down and this request was not done after {limit_s:g} s."
            )
            await self._wait_answered(loop.time() + _FLUSH_S)
        finally:
            if draining is not None:
                await asyncio.wait({draining}, timeout=_FLUSH_S)
                await _end(draining)

    def _tell_running(self, why: str) -> None:
        """End the requests that still run, each with an error."""
        error = unavailable(why, "draining", self.settings.retry_after_s)
        for generation in list(self.state.running):
            generation.abort(error)

    async def _wait_answered(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        while self._is_answering() and loop.time() < deadline:
            await asyncio.sleep(0.02)

    def _is_answering(self) -> bool:
        assert self._listener is not None, "a server drains only after bind()"
        return any(connection.is_worth_waiting_for() for connection in self._listener.open)

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)

    def _remove_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _on_signal(self, number: int) -> None:
        """Drain at the first signal; at the second end now, whatever still holds a thread."""
        self._heard.append(number)
        self._stop.set()
        if len(self._heard) > 1:
            self._exit_code = 128 + number
            self._now.set()
            exit_timer = threading.Timer(_HARD_EXIT_S, os._exit, (self._exit_code,))
            exit_timer.daemon = True
            exit_timer.start()


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait for them; what they raise has been seen or is no longer of interest."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
