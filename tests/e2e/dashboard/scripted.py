"""The real HTTP server, on a thread, before an engine that says what a test wants said."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Self

from radiance_core.chat_format.format import ChatFormat
from radiance_core.engine.interface import Delta, Health, Request, SequenceInfo
from radiance_core.engine.sampling import SamplingParams
from radiance_core.server.lifecycle import Server
from radiance_core.server.settings import ServerSettings


class Letters:
    """A token is a character."""

    vocab_size = 0x110000
    bos_id = None
    eos_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()
    add_bos = add_eos = False

    def token_bytes(self, id_: int) -> bytes:
        return chr(id_).encode()

    def special_texts(self) -> dict[str, str]:
        return {}

    def token_text(self, id_: int) -> str:
        return chr(id_)

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(letter) for letter in text]

    encode_prompt = encode

    def as_text(self, text: str) -> str:
        return text

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(map(chr, ids))


class ScriptedModel:
    """A model whose prompts are its messages as JSON."""

    created = 1_700_000_000
    max_context = 100_000
    tokenizer = Letters()
    default_sampling = SamplingParams(temperature=0.25)
    sampling_sources = {"temperature": "command line"}  # noqa: RUF012
    max_tokens_cap = None
    template_variables = frozenset({"enable_thinking"})

    def __init__(self) -> None:
        self.model_id = "scripted"
        self.chat_format = ChatFormat()

    async def render_chat(self, messages: Any, _tools: Any, _kwargs: Any) -> str:
        return json.dumps(messages)


class ScriptedEngine:
    """Says ``words`` and counts as an engine does.

    ``allowed``: how many of the words may be said by now, None for all.
    """

    def __init__(self) -> None:
        self.words: list[str] = ["Hello", ", ", "wörld", "."]
        self.allowed: int | None = None
        self.refusal: Exception | None = None
        self.failure: str | None = None
        self.requests: list[Request] = []
        self.open = 0
        self.stats_now: dict[str, float] = {"requests_running": 0, "requests_waiting": 0}
        self.listed: list[SequenceInfo] = []

    def health(self) -> Health:
        return Health(True, "ready", "ready")

    async def drain(self, timeout_s: float) -> None:
        return

    def stats(self) -> Mapping[str, float]:
        return self.stats_now

    def sequences(self) -> list[SequenceInfo]:
        return self.listed

    async def reset_prefix_cache(self) -> bool:
        return not self.listed

    async def generate(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        if self.refusal:
            raise self.refusal
        self.open += 1
        try:
            for place, word in enumerate(self.words):
                await asyncio.sleep(0)
                while self.allowed is not None and place >= self.allowed:
                    await asyncio.sleep(0.01)
                yield Delta(word, 1)
            if self.failure:
                yield Delta("", 0, "error", error=self.failure)
                return
            total = len(self.words)
            yield Delta("", 0, "stop", None, None, len(request.prompt_ids), total, 3)
        finally:
            self.open -= 1

    def asked(self) -> list[dict[str, Any]]:
        """Return the messages of the last request."""
        found: list[dict[str, Any]] = json.loads(
            Letters().decode(list(self.requests[-1].prompt_ids))
        )
        return found


class ScriptedServer:
    """Runs from entry to exit; ``start`` binds, with settings of the test's own."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine()
        self.model = ScriptedModel()
        self.graph: dict[str, Any] = {
            "nodes": [], "selections": [], "libraries": {}, "num_ops": 0
        }  # fmt: skip
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.server: Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.server is not None:
            self.run(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(240)
        self._loop.close()

    def run(self, work: Any) -> Any:
        """Run a coroutine beside the server and return what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(240)

    def start(self, *, attach: bool = True, port: int = 0, **settings: Any) -> str:
        """Bind and serve; return where."""

        async def bind() -> Server:
            server = Server(ServerSettings(port=port, **settings), "1.2.3")
            await server.bind()
            return server

        self.server = self.run(bind())
        assert self.server is not None
        if attach:
            self.attach()
        return self.server.url

    def attach(self) -> None:
        """Begin to serve the model."""
        server = self.server
        assert server is not None, "start comes first"

        async def attach() -> None:
            graph: Callable[[], bytes] = lambda: json.dumps(self.graph).encode()  # noqa: E731
            server.describe({}, graph)
            server.attach(self.engine, self.model)  # type: ignore[arg-type]

        self.run(attach())

    def stop(self) -> None:
        """End at once."""
        assert self.server is not None, "start comes first"
        self.run(self.server.close())
        self.server = None
