"""From a checkpoint to its architecture: who serves it, and what is wrong with what it says."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plugin_folder import PluginFolder

from radiance_abi.errors import ConfigurationError
from radiance_core import build, discover
from radiance_core.build import BuildSettings
from radiance_core.cli.model_settings import resolve_model
from radiance_core.declare import find_architecture
from radiance_core.graph.errors import ModelConfigError
from radiance_core.nearest import did_you_mean, nearest

ARCH = """
    from radiance_abi import hookimpl
    class Arch:
        id, quant = "{id}", "{quant}"
    @hookimpl
    def radiance_architectures():
        yield Arch()
"""


def checkpoint(format: str = "safetensors", **metadata: Any) -> Any:  # noqa: A002
    return SimpleNamespace(format=format, metadata=metadata)


def add(plugins: PluginFolder, name: str, id_: str, quant: str = "") -> None:
    source = ARCH.format(id=id_, quant=quant)
    plugins.add(name, source, group=discover.ARCHITECTURES)


def refused(text: str) -> "pytest.RaisesExc[ModelConfigError]":
    return pytest.raises(ModelConfigError, match=re.escape(text))


def test_a_model_finds_its_architecture(plugins: PluginFolder) -> None:
    """A GGUF says general.architecture, a folder model_type, whose underscores do not count."""
    add(plugins, "toy", "toyfive")
    gguf = checkpoint("gguf", **{"general.architecture": "toyfive"})
    assert find_architecture(gguf, "m").id == "toyfive"
    assert find_architecture(checkpoint(model_type="toy_five"), "m").id == "toyfive"


def test_a_named_quant_wins_over_any(plugins: PluginFolder) -> None:
    """(id, quant) goes before (id, anything), and falls back to it."""
    add(plugins, "any", "toyfive")
    add(plugins, "exact", "toyfive", "fp8")

    def quant(method: str) -> str:
        config = {"quant_method": method}
        return find_architecture(
            checkpoint(model_type="toyfive", quantization_config=config), "m"
        ).quant

    assert quant("fp8") == "fp8"
    assert quant("mxfp4") == ""


def test_a_model_that_nobody_serves(plugins: PluginFolder) -> None:
    """The error has the installed families, broken plugins, and what to install."""
    add(plugins, "toy", "toyfive")
    plugins.add("bad", "raise RuntimeError('no luck')", group=discover.ARCHITECTURES)
    with refused(
        "m.gguf: architecture 'unseen' is served by no installed plugin; installed: "
    ) as c:
        find_architecture(checkpoint("gguf", **{"general.architecture": "unseen"}), "m.gguf")
    text = str(c.value)
    assert "toyfive" in text
    assert "Install the package that has it." in text
    assert "plugin bad (radiance-bad 0.1)" in text
    assert "no luck" in text


@pytest.mark.parametrize("name", [None, 3])
def test_a_model_that_says_nothing(name: object) -> None:
    """A file without an architecture is refused with the key."""
    with refused(f"m: key model_type: expected the name of an architecture, got {name!r}"):
        find_architecture(checkpoint(model_type=name), "m")
    with refused("m: key general.architecture: expected the name"):
        find_architecture(checkpoint("gguf"), "m")


def test_the_context_ends_where_the_training_did() -> None:
    """A longer context than the model's is refused; none asked for is the model's own."""
    metadata: Any = SimpleNamespace(limits=SimpleNamespace(max_context=100))
    with refused("--max-model-len: expected at most 100, which the model was trained for, got 101"):
        build._limits(BuildSettings(Path("m"), max_context=101), metadata)
    assert build._limits(BuildSettings(Path("m"), max_context=100), metadata).max_context == 100
    assert build._limits(BuildSettings(Path("m")), metadata).max_context == 100


def test_symbols_have_their_largest_values() -> None:
    """Tokens of a step make room for one of each sequence; logits rows are one a sequence."""
    limits = build.Limits(8, 4, 100)
    largest = build._largest(BuildSettings(Path("m")), limits)
    assert (largest["TOKENS"], largest["SEQS"], largest["OUT_ROWS"], largest["MAX_Q_LEN"]) == (
        8, 8, 8, 8,
    )  # fmt: skip
    assert build._largest(BuildSettings(Path("m"), max_out_rows=3), limits)["OUT_ROWS"] == 3


def test_a_path_that_is_not_there() -> None:
    """What is neither a file nor a hub id is refused without asking the hub."""
    for text in ("no.gguf", "./a/b", "/a/b", "~/x", "a/b/c", "a/"):
        with pytest.raises(ConfigurationError, match=f"--model {text}: expected a GGUF file"):
            resolve_model(text)


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub id that cannot be had says so with the cause."""
    import huggingface_hub

    def fail(*_: object, **__: object) -> str:
        raise OSError("no\nroute")

    monkeypatch.setattr(huggingface_hub, "model_info", fail)
    with pytest.raises(ConfigurationError) as caught:
        resolve_model("someone/something")
    assert str(caught.value) == (
        "--model someone/something: no such file or folder, and the hub did not give a model of "
        "that id: OSError: no route; check the id and the network, or name a file"
    )


def test_the_nearest_name() -> None:
    """A near name is offered, a far one is not."""
    assert nearest("prot", ["port", "host"]) == "port"
    assert did_you_mean("prot", ["port"]) == "; did you mean 'port'?"
    assert did_you_mean("zzzz", ["port"]) == ""
