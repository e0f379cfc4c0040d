"""Ctrl-C around an answer in the terminal: never an exception where nobody waits for one."""

import signal
from types import SimpleNamespace

import pytest

from radiance_core.cli import chat
from radiance_core.engine.interface import Delta
from radiance_core.engine.sampling import SamplingParams


async def generate(_):
    """Answer with a word."""
    yield Delta("word", 1)
    yield Delta("", 0, "stop")


@pytest.fixture
def loaded():
    sources = {"temperature": "built-in", "top_p": "built-in"}
    model = SimpleNamespace(
        default_sampling=SamplingParams(), sampling_sources=sources, model_id="fake"
    )
    return SimpleNamespace(model=model, engine=SimpleNamespace(generate=generate))


@pytest.fixture
def handler():
    """What Ctrl-C did before the test, set again after it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


async def test_after_an_answer_ctrl_c_does_what_it_did_before(loaded, handler, capsys):
    """Once the answer is there, Ctrl-C ends a program in the way that it would have before."""

    def mine(*_):
        return

    signal.signal(signal.SIGINT, mine)
    answer = chat._Answer(loaded, chat.Ask())
    assert await answer.stream([1]) == "word"
    assert signal.getsignal(signal.SIGINT) is mine
    assert not answer.stopped
    assert capsys.readouterr().out == "word"


def test_ctrl_c_between_an_answer_and_the_next_line_goes_on(loaded, handler, monkeypatch, capsys):
    """Wherever it comes in a conversation, the conversation goes on until its input ends."""
    lines = iter(["/clear", "/clear"])

    def read_line(*_, **__):
        line = next(lines, None)
        if line is None:
            raise EOFError
        return line

    class Interrupted(chat._Conversation):
        def _take(self, text):
            raise KeyboardInterrupt

    monkeypatch.setattr(chat, "read_line", read_line)
    assert Interrupted(loaded, chat.Ask(), edited=False).go_on() == 0
    assert capsys.readouterr().out.count("(Ctrl-D ends the conversation)") == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
