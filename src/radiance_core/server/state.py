"""What the server serves at this moment, and what runs on it."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from radiance_core.engine.interface import Engine, EngineState, Health, TextModel
from radiance_core.server.counts import Counts
from radiance_core.server.errors import ApiError, quote, unavailable
from radiance_core.server.exchange import Exchange
from radiance_core.server.generation import Generation
from radiance_core.server.settings import ServerSettings

_CODES = {"loading": "model_loading", "draining": "draining", "failed": "engine_failed"}


@dataclass(frozen=True, slots=True)
class Serving:
    """A model with the engine that runs it.

    Args:
        names: names a request may use; the first is the one reported.
        fingerprint: changes with the program's version and the model, as ``system_fingerprint``.
    """

    engine: Engine
    model: TextModel
    names: tuple[str, ...]
    fingerprint: str


@dataclass(slots=True)
class State:
    """What changes while the server runs: its phase, its model, what it has counted.

    Args:
        facts: what is known of how the model was built, as JSON, for ``/server_info``.
        graph: makes what ``/graph`` says, as JSON text; called on other threads, so it keeps what
            it has made.
        trace: is told every request that was answered, its status and the model's name.
        num_connections: counts the open connections.
    """

    settings: ServerSettings
    version: str
    phase: EngineState = "loading"
    detail: str = "the model is being loaded"
    serving: Serving | None = None
    running: set[Generation] = field(default_factory=set)
    counts: Counts = field(default_factory=Counts)
    facts: Mapping[str, object] = field(default_factory=dict)
    graph: Callable[[], bytes] | None = None
    trace: Callable[[Exchange, int, str | None], None] | None = None
    num_connections: Callable[[], int] = int
    started: float = field(default_factory=time.monotonic)

    def attach(self, engine: Engine, model: TextModel) -> None:
        """Begin to serve a model."""
        given = self.settings.served_model_names
        names = tuple(dict.fromkeys((*given, model.model_id)))
        facts = f"{self.version}\0{model.model_id}\0{model.created}"
        digest = hashlib.sha256(facts.encode()).hexdigest()[:12]
        self.serving = Serving(engine, model, names, f"fp_{digest}")
        self.phase, self.detail = "ready", ""

    def enter(self, phase: EngineState, detail: str) -> None:
        """Leave the phase of serving."""
        self.phase, self.detail = phase, detail

    def health(self) -> Health:
        """Say whether a request would be served now."""
        if self.serving is None or self.phase != "ready":
            return Health(False, self.detail, self.phase)
        return self.serving.engine.health()

    def current(self) -> Serving:
        """Return what is served.

        Raises: ``ApiError`` 503 while there is nothing, with a wait where that will change.
        """
        if self.serving is not None and self.phase == "ready":
            return self.serving
        code = _CODES.get(self.phase, "unavailable")
        raise unavailable(f"server: {self.detail}.", code, self.settings.retry_after_s)

    def attached(self) -> Serving:
        """Return what is served or was until a drain or a failure, to look into it.

        Raises: ``ApiError`` 503 before there is a model.
        """
        return self.serving or self.current()

    def named(self, name: str | None) -> Serving:
        """Return the model of that name, or the only one for ``None``.

        Raises: ``ApiError`` 404 naming the models that exist, 503 when nothing is served.
        """
        serving = self.current()
        if name is None or name in serving.names:
            return serving
        raise ApiError(
            404,
            f"model: {quote(name)} does not exist here; this server has "
            f"{', '.join(serving.names)}.",
            param="model",
            code="model_not_found",
        )

    @contextmanager
    def tracked(self, generation: Generation) -> Iterator[Generation]:
        """Keep a generation where a drain finds it."""
        self.running.add(generation)
        try:
            yield generation
        finally:
            self.running.discard(generation)
