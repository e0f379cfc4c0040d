"""Which format is used: a setting's, else the architecture's, else the template's."""

from types import SimpleNamespace

import pytest
from plugin_folder import PluginFolder
from unit.chat_format.families import FAMILIES, SPECIAL, template
from unit.chat_format.vocabulary import Bytes

from radiance_abi.chat_format import ChatMarks, ReasoningFormat, ToolFormat
from radiance_core import discover
from radiance_core.chat_format.choose import choose_format, describe_format
from radiance_core.chat_format.format import ChatFormat
from radiance_core.chat_format.named import FORMATS, named_like
from radiance_core.declare import find_architecture
from radiance_core.settings import SETTINGS

TOKENS = Bytes((*SPECIAL, "<|own|>"))
MARKS = ChatMarks(ReasoningFormat("<|own|>", "</own>"), ToolFormat("own", "<own>", "!", "</own>"))
PLUGIN = """
    from radiance_abi import hookimpl
    from radiance_abi.chat_format import ChatMarks, ReasoningFormat, ToolFormat
    class Arch:
        id, quant = "stranger", ""
        def chat_marks(self, cfg):
            return ChatMarks(
                ReasoningFormat("<|own|>", "</own>"), ToolFormat("own", "<own>", "!", "</own>")
            )
    @hookimpl
    def radiance_architectures():
        yield Arch()
"""


@pytest.fixture(scope="module")
def hermes(deriving):
    return deriving(FAMILIES["hermes"])[1]


@pytest.fixture(scope="module")
def plain(deriving):
    return deriving(template("{{- '' }}"))[1]


def test_the_template_tells_when_nobody_else_does(hermes, plain):
    """Without setting or statement the template's own way is used, and said to be."""
    form = choose_format(hermes, TOKENS)
    assert describe_format(form) == (
        "tools: hermes format (from the template)   reasoning: <think>"
    )
    assert form.template_has_tools
    form = choose_format(plain, TOKENS)
    assert describe_format(form) == (
        "tools: none: its chat template does not write the calls of earlier answers"
        "   reasoning: none"
    )


def test_a_strangers_architecture_may_state_its_marks(plugins: PluginFolder, hermes, plain):
    """What an installed plugin states goes before the template, special tokens found in it too."""
    plugins.add("stranger", PLUGIN, group=discover.ARCHITECTURES)
    checkpoint = SimpleNamespace(format="gguf", metadata={"general.architecture": "stranger"})
    stated = find_architecture(checkpoint, "m").chat_marks(None)  # type: ignore[attr-defined,arg-type]
    assert stated == MARKS
    form = choose_format(hermes, TOKENS, stated)
    assert describe_format(form) == "tools: own format (from the architecture)   reasoning: <|own|>"
    assert form.special == {"<|own|>": 256 + len(SPECIAL)}
    only = choose_format(hermes, TOKENS, ChatMarks(tools=MARKS.tools))
    assert only.reasoning == ReasoningFormat("<think>", "</think>")
    assert not choose_format(plain, TOKENS, stated).template_has_tools


def test_settings_go_before_everything(hermes, plain):
    """--tool-format and --reasoning-format override; a template without tools is told so."""
    form = choose_format(hermes, TOKENS, MARKS, tool_format="glm", reasoning_format="none")
    assert describe_format(form) == "tools: glm format (from --tool-format)   reasoning: none"
    form = choose_format(plain, TOKENS, tool_format="mistral")
    assert describe_format(form) == (
        "tools: mistral format (from --tool-format, told in a system message)   reasoning: none"
    )
    assert set(form.special) == {"[TOOL_CALLS]", "[ARGS]"}
    assert form.tools is FORMATS["mistral"]


def test_the_setting_offers_every_named_format():
    """The choices of --tool-format are auto and the names there are."""
    [setting] = [one for one in SETTINGS if one.name == "tool-format"]
    assert setting.choices == ("auto", *FORMATS)


def test_a_way_without_a_name_is_called_by_its_first_mark():
    """Names are of ways of writing, found whatever the white space in them is."""
    assert [named_like(form) for form in FORMATS.values()] == list(FORMATS)
    assert named_like(MARKS.tools) == "<own>"
    assert ChatFormat().tools is None
