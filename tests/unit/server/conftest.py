"""An engine and a model that are deterministic and instant, and a real server in front of them."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from radiance_core.chat_format.format import ChatFormat
from radiance_core.constrain.compiler import Compiler
from radiance_core.engine.interface import Delta, Fault, Health, Request, SequenceInfo
from radiance_core.engine.sampling import SamplingParams
from radiance_core.server.lifecycle import Server
from radiance_core.server.settings import ServerSettings


class ByteTokenizer:
    """One id a byte; 256 is BOS."""

    vocab_size = 257
    bos_id = 256
    eos_ids = frozenset({10, 0})
    special_ids = frozenset({256})
    add_bos = True
    add_eos = False
    error_mode = "replace"

    def starts_with_added_space(self, id_):
        return False

    def special_texts(self):
        return {"bos_token": "<s>"}

    def token_text(self, id_):
        return None if id_ == 0 else "<s>" if id_ == 256 else f"b{id_}"

    def token_bytes(self, id_):
        return b"<s>" if id_ == 256 else bytes([id_])

    def encode(self, text, *, add_special_tokens, parse_special=True):
        return [256] * add_special_tokens + list(text.encode())

    def as_text(self, text):
        return text

    def encode_prompt(self, rendered):
        return self.encode(rendered, add_special_tokens=True)

    def decode(self, ids, *, skip_special_tokens=True):
        begin = "" if skip_special_tokens else "<s>" * (list(ids)[:1] == [256])
        return begin + bytes(i for i in ids if i < 256).decode("utf-8", "replace")


COMPILER = Compiler(ByteTokenizer())  # the real one; its process starts when a test needs it


@pytest.fixture(scope="session", autouse=True)
def _compiler_ends():
    yield
    COMPILER.close()


class FakeModel:
    def __init__(self, model_id="org/tiny:q4", max_context=512):
        self.model_id = model_id
        self.created = 1_700_000_000
        self.max_context = max_context
        self.tokenizer = ByteTokenizer()
        self.default_sampling = SamplingParams(temperature=0.7)
        self.sampling_sources = {"temperature": "command line"}
        self.max_tokens_cap = None
        self.template_variables = frozenset({"enable_thinking", "persona"})
        self.rendered: list[tuple[Any, Any, Any]] = []
        self.template_error: Exception | None = None
        self.chat_format = ChatFormat()

    async def compile_constraint(self, spec):
        return await COMPILER.compile(spec.kind, spec.text)

    async def render_chat(self, messages, tools, kwargs):
        self.rendered.append((messages, tools, kwargs))
        if self.template_error:
            raise self.template_error
        text = "".join(f"<{m['role']}>{m['content'].strip()}</>" for m in messages)
        return text + "<assistant>" * kwargs["add_generation_prompt"]


class FakeEngine:
    """Answers with ``words`` in turn, one token each, as far as ``max_tokens`` goes."""

    def __init__(self):
        self.words = ["Hello", ", ", "wörld", " 🙂", "."]
        self.requests: list[Request] = []
        self.refusal: Exception | None = None
        self.gap_s = 0.0
        self.queued_s = 0.25
        self.fail_after: int | None = None
        self.at_fault: Fault = "engine"
        self.said = "kernel gemm_nt failed at /usr/lib/x.so"
        self.raise_after: int | None = None
        self.endless = False
        self.open = 0
        self.closed_at: float | None = None
        self.state = "ready"
        self.before_first_s = 0.0
        self.gate: asyncio.Event | None = None  # what the first token waits for
        self.counters: dict[str, float] = {}
        self.listed: list[SequenceInfo] = []
        self.resets = 0

    def health(self):
        return Health(self.state == "ready", "steps run" if self.state == "ready" else "it broke",
                      self.state)  # fmt: skip

    async def drain(self, timeout_s):
        self.state = "draining"

    def stats(self):
        return self.counters

    def sequences(self):
        return self.listed

    async def reset_prefix_cache(self):
        self.resets += 1
        return not self.listed

    async def generate(self, request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        if self.refusal:
            raise self.refusal
        self.open += 1
        try:
            await asyncio.sleep(self.before_first_s)
            if self.gate is not None:
                await self.gate.wait()
            limit = request.sampling.max_tokens
            sent = 0
            while sent < limit and (self.endless or sent < len(self.words)):
                if self.fail_after == sent:
                    yield Delta("", 0, "error", error=self.said, at_fault=self.at_fault)
                    return
                if self.raise_after == sent:
                    raise ValueError('File "/usr/lib/python3/x.py", line 3 at 0x7f00deadbeef')
                await asyncio.sleep(self.gap_s)
                yield Delta(self.words[sent % len(self.words)], 1)
                sent += 1
            done = "stop" if sent == len(self.words) and not self.endless else "length"
            yield Delta("", 0, done, prompt_tokens=len(request.prompt_ids),
                        completion_tokens=sent, cached_tokens=1,
                        queued_s=self.queued_s)  # fmt: skip
        finally:
            self.open -= 1
            self.closed_at = asyncio.get_running_loop().time()


@dataclasses.dataclass
class Live:
    """A running server, what is behind it, and a client in front of it."""

    server: Server
    engine: FakeEngine
    model: FakeModel
    http: aiohttp.ClientSession

    @property
    def url(self):
        return self.server.url

    async def post(self, path, body=None, raw=None, **kwargs):
        headers = {"content-type": "application/json", **kwargs.pop("headers", {})}
        data = raw if raw is not None else json.dumps(body)
        async with self.http.post(self.url + path, data=data, headers=headers, **kwargs) as got:
            return got.status, json.loads(await got.read()), got.headers

    async def get(self, path, method="GET", **kwargs):
        async with self.http.request(method, self.url + path, **kwargs) as got:
            data = await got.read()
            is_json = data and got.content_type == "application/json"
            return got.status, json.loads(data) if is_json else data or None, got.headers

    async def stream(self, path, body, **kwargs):
        """Return status, headers and the decoded events, ``[DONE]`` as it is."""
        headers = {"content-type": "application/json"}
        data = json.dumps({**body, "stream": True})
        async with self.http.post(self.url + path, data=data, headers=headers, **kwargs) as got:
            text = (await got.read()).decode()
        if got.status != 200:
            return got.status, got.headers, [json.loads(text)]
        events = [block.removeprefix("data: ") for block in text.split("\n\n") if block]
        return got.status, got.headers, [
            event if event == "[DONE]" or event.startswith(":") else json.loads(event)
            for event in events
        ]  # fmt: skip


@pytest.fixture
def settings():
    return ServerSettings(port=0)


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Any]]:
    """Start servers with settings of one's own; ``attach=False`` leaves them loading."""
    running: list[Live] = []

    async def go(attach=True, model=None, **kwargs):
        kwargs.setdefault("port", 0)
        server = Server(ServerSettings(**kwargs), "1.2.3")
        await server.bind()
        live = Live(server, FakeEngine(), model or FakeModel(), aiohttp.ClientSession())
        server.describe({}, lambda: b'{"nodes": []}')
        if attach:
            server.attach(live.engine, live.model)
        running.append(live)
        return live

    yield go
    for live in running:
        await live.http.close()
        await live.server.close()


@pytest.fixture
async def live(start):
    return await start()


HI = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def hi():
    return json.loads(json.dumps(HI))
