"""Chat templates render as the public renderer does, and no template can do harm."""

import copy
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from unit.text.chat_samples import (
    CHATML,
    CONVERSATIONS,
    HELLO,
    LOOPS,
    PARTS_ONLY,
    QWEN,
    SPECIAL,
    TEMPLATES,
    TOOLS,
)

from radiance_core.text.chat_template import ChatTemplate
from radiance_core.text.errors import TemplateError

Make = Callable[..., ChatTemplate]


def public_render(
    source: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    generate: bool,
    **extra: Any,
) -> str:
    """Render with transformers."""
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    texts, _ = utils.render_jinja_template(
        conversations=[messages],
        tools=tools,
        chat_template=source,
        add_generation_prompt=generate,
        **SPECIAL,
        **extra,
    )
    return str(texts[0])


def outcome(render: Callable[..., str], *args: Any, **kwargs: Any) -> str:
    """Return a render's text, or what the template said when it refused the conversation."""
    try:
        return render(*args, **kwargs)
    except TemplateError as error:
        return f"refused: {error.template_text}"
    except Exception as error:
        return f"refused: {error}"


class TestAgainstTransformers:
    """Every family of template on every conversation, with and without tools."""

    @pytest.mark.parametrize("family", sorted(TEMPLATES))
    def test_renders_are_equal(self, make: Make, family: str) -> None:
        """Text, or the template's own refusal, is the same as the public renderer's."""
        template = make(TEMPLATES[family])
        cases = itertools.product(CONVERSATIONS.values(), (None, TOOLS), (True, False))
        for messages, tools, generate in cases:
            expected = outcome(public_render, TEMPLATES[family], messages, tools, generate)
            got = outcome(template.render, messages, tools=tools, add_generation_prompt=generate)
            assert got == expected

    def test_extra_variables(self, make: Make) -> None:
        """A template's own switches reach it."""
        template = make(QWEN)
        for value in (True, False):
            extra = {"enable_thinking": value}
            assert template.render(HELLO, extra=extra) == public_render(
                QWEN, HELLO, None, True, **extra
            )
        assert template.facts.variables == {
            "messages", "tools", "add_generation_prompt", "enable_thinking",
        }  # fmt: skip
        assert "date_string" in make(TEMPLATES["llama3"]).facts.variables


ATTACKS = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "attr filter": "{{ ''|attr('__class__') }}",
    "attr filter chain": "{{ messages|attr('__class__')|attr('__init__')|attr('__globals__') }}",
    "map attribute": "{{ [messages]|map(attribute='__class__')|list }}",
    "lipsum": "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "cycler": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "joiner": "{{ joiner.__init__.__globals__ }}",
    "namespace": "{{ namespace.__init__.__globals__ }}",
    "own function": "{{ raise_exception.__globals__ }}",
    "self": "{{ self.__init__.__globals__ }}",
    "format attribute": "{{ '{0.__class__}'.format(1) }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "format method kept": "{% set f = '{0.__class__}'.format %}{{ f(1) }}",
    "change a list": "{{ messages.append(1) }}",
    "change a dict": "{{ messages[0].update({'a': 1}) }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "extends": "{% extends '/etc/passwd' %}",
    "format bomb": "{{ '%0100000000d' % 1 }}",
    "format bomb 2": "{{ '{:0100000000d}'.format(1) }}",
    "format bomb 3": "{{ '%0999999999999d'|format(1) }}",
    "repeat": "{{ 'x' * 10**9 }}",
    "repeat list": "{{ ([0] * 10**9)|length }}",
    "power": "{{ (9 ** (9 ** 9)) % 10 }}",
    "range": "{% for i in range(10**9) %}x{% endfor %}",
    "nested loops": LOOPS,
    "nested output": LOOPS.replace("%}{% endfor", "%}xxxx{% endfor", 1),
    "doubling": "{% set n = namespace(s='x') %}"
    "{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s|length }}",
    "macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursive loop": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "center": "{{ 'x'|center(10**10) }}",
    "indent": "{{ ('a\n' * 100000)|indent(10000) }}",
    "replace": "{{ ('a' * 10000)|replace('a', 'b' * 100000) }}",
    "batch": "{{ [1]|batch(10**10, 0)|list|length }}",
    "slice": "{{ [1]|slice(10**10)|list|length }}",
    "tojson": "{{ messages|tojson(indent=10**9) }}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "ifs": "{% if 1 %}" * 6000 + "{% endif %}" * 6000,
    "fors": "{% for a in [1] %}" * 40 + "{% endfor %}" * 40,
    "nots": "{{ " + "not " * 20000 + "1 }}",
    "minuses": "{{ " + "-" * 20000 + "1 }}",
    "ternaries": "{{ " + "1 if 1 else " * 10000 + "1 }}",
    "attribute chain": "{{ a" + ".b" * 10000 + " }}",
    "filter chain": "{{ a" + "|upper" * 10000 + " }}",
    "sum": "{{ 1" + "+1" * 10000 + " }}",
    "undefined": "{{ foo.bar }}",
    "unclosed": "{{ ((( ",
    "comment": "{#" * 100000,
    "long": "x" * (1 << 19),
}


SECONDS = 1.0


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_attacks_end_in_an_error(make: Make, attack: str) -> None:
    """Each attack gives a typed error, at loading or rendering, in little more than the limit.

    The limits are 1 s of rendering here, 2 s of loading always; two seconds are left for parsing
    and for starting a process, at the best of a few times where the machine is busy.
    """
    took: list[float] = []
    while len(took) < 10 and min(took, default=99.0) >= 2 + SECONDS + 2:
        began = time.monotonic()
        with pytest.raises(TemplateError, match=r"^chat template: "):
            make(ATTACKS[attack], seconds=SECONDS).render(HELLO)
        took.append(time.monotonic() - began)
    assert min(took) < 2 + SECONDS + 2


@pytest.mark.parametrize(
    "attack",
    [
        "{{ 'x' * (10**8 * n) }}",
        LOOPS.replace("99999", "n * 9999"),
        "{{ messages[n].x }}",
        "{{ (9 ** (9 ** (9 * n))) % 10 }}",
    ],
)
def test_next_render_works(make: Make, attack: str) -> None:
    """After an attack on one render, the same template renders the next conversation."""
    template = make("{% if n %}" + attack.replace("\n", "") + "{% else %}fine{% endif %}")
    for _ in range(2):
        template._process._seconds = 1
        with pytest.raises(TemplateError):
            template.render(HELLO, extra={"n": 9})
        template._process._seconds = 60
        assert template.render(HELLO, extra={"n": 0}) == "fine"


class TestMessages:
    """Contents and roles reach the template in the form it takes."""

    def test_parts_are_joined(self, make: Make) -> None:
        """A template for strings gets the text parts joined with nothing between."""
        parts = [{"type": "text", "text": "Wh"}, {"type": "input_text", "text": "ill"}, "!"]
        template = make("{{ messages[0].content }}")
        assert template.facts.takes_strings
        assert template.render([{"role": "user", "content": parts}]) == "Whill!"

    def test_parts_are_kept(self, make: Make) -> None:
        """A template that goes through parts gets them, and a string as one part."""
        template = make(PARTS_ONLY)
        assert not template.facts.takes_strings
        parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
        assert "[a][b]" in template.render([{"role": "user", "content": parts}])
        assert "<user>[hi]" in template.render(HELLO)
        assert template.render([{"role": "assistant", "content": None}]).strip() == "<assistant>"

    def test_template_for_both(self, make: Make) -> None:
        """A template that asks which it is gets each as it came."""
        facts = make(TEMPLATES["gemma"]).facts
        assert (facts.takes_strings, facts.takes_parts) == (True, True)

    @pytest.mark.parametrize(
        "source",
        [
            "{% for m in messages %}{% set c = m.content %}{% for p in c %}{{ p.text }}{% endfor %}"
            "{% endfor %}",
            "{% macro show(content) %}{% for p in content %}{{ p.text }}{% endfor %}{% endmacro %}"
            "{{ show(messages[0]['content']) }}",
            "{{ messages[0]['content'][0]['text'] }}",
        ],
    )
    def test_parts_are_noticed(self, make: Make, source: str) -> None:
        """Going through parts is noticed by variable, by macro and by number."""
        assert make(source).render(HELLO) == "hi"

    def test_missing_content(self, make: Make) -> None:
        """A missing content is empty, but stays missing where the template asks."""
        messages: list[dict[str, Any]] = [
            {"role": "assistant", "content": None},
            {"role": "assistant"},
        ]
        shown = make("{% for m in messages %}[{{ m.content }}]{% endfor %}")
        assert shown.render(messages) == "[][]"
        asking = "{% for m in messages %}{{ m.content is none }}{% endfor %}"
        assert make(asking).render(messages[:1]) == "True"

    def test_developer(self, make: Make) -> None:
        """A developer message is a system message unless the template names the role."""
        messages: list[dict[str, Any]] = [{"role": "developer", "content": "x"}]
        assert make("{{ messages[0].role }}").render(messages) == "system"
        naming = "{% if messages[0].role == 'developer' %}dev{% endif %}"
        assert make(naming).render(messages) == "dev"

    def test_request_is_not_changed(self, make: Make) -> None:
        """Rendering leaves the caller's messages as they were."""
        messages = [{"role": "developer", "content": [{"type": "text", "text": "x"}]}]
        before = copy.deepcopy(messages)
        make(CHATML).render(messages)
        assert messages == before
