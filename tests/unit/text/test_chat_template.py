"""Chat templates render as the public renderer does, and no template can do harm."""

import copy
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil
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

from radiance_core.text.chat_template import RESERVED, ChatTemplate
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


class TestErrors:
    """The text of each error says what was expected and what happened."""

    @pytest.mark.parametrize(
        ("source", "kind", "text"),
        [
            (
                "{{ raise_exception('Only user first.') }}",
                "raised",
                "chat template: the template refuses this conversation: Only user first. Change",
            ),
            (
                "{{ a.b.c }}",
                "undefined",
                "chat template: render: the template needs a value that is not there: 'a' is undef",
            ),
            (
                "{{ ''.__class__ }}",
                "forbidden",
                "the template reaches for what it may not have: access to '__class__' of a str is",
            ),
            (
                "{{ 'x' * 5000000 }}",
                "too_large",
                "the text is larger than a prompt may be: more than 4194304 characters; change",
            ),
            (
                "{{ ([0] * 10**9)|length }}",
                "too_large",
                "the text is larger than a prompt may be: out of memory; change",
            ),
            (
                LOOPS,
                "timeout",
                "chat template: render: expected to end within 0.5 s, it did not; shorten",
            ),
            ("{{ 1/0 }}", "failed", "chat template: render: the template failed: division by zero"),
            (
                "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
                "failed",
                "the template failed: recursion without end; change",
            ),
        ],
    )
    def test_render(self, make: Make, source: str, kind: str, text: str) -> None:
        """Errors of a render carry their kind; a refusal carries the template's own words."""
        with pytest.raises(TemplateError) as raised:
            make(source, seconds=0.5).render(HELLO)
        assert text in str(raised.value)
        assert raised.value.kind == kind
        said = "Only user first." if kind == "raised" else None
        assert raised.value.template_text == said

    @pytest.mark.parametrize(
        ("source", "text"),
        [
            ("\n{% for %}", "chat template: line 2: expected a jinja2 template, got: Expected an"),
            (
                "{% if 1 %}",
                "chat template: line 1: expected a jinja2 template, got: Unexpected e",
            ),
            ("{% if 1 %}" * 51, "chat template: expected nesting of at most 50 levels, got more"),
            ("x" * 262145, "chat template: expected at most 262144 characters, got 262145; give"),
        ],
    )
    def test_load(self, make: Make, source: str, text: str) -> None:
        """What is wrong with the source shows when it is loaded, each time that it is."""
        template = make(source)
        for _ in range(2):
            with pytest.raises(TemplateError) as raised:
                _ = template.facts
            assert text in str(raised.value)
            assert raised.value.kind == ("too_large" if len(source) > 1000 else "syntax")

    def test_many_assignments_are_no_nesting(self, make: Make) -> None:
        """A template that sets a hundred variables one after the other is not deep."""
        source = "{% set x = 1 %}" * 100 + "{% set y %}a{% endset %}{{ x }}{{ y }}"
        assert make(source).render(HELLO) == "1a"
        with pytest.raises(TemplateError, match="got more"):
            _ = make("{% if 1 %}{% set x = 1 %}" * 51).facts

    @pytest.mark.parametrize(
        ("messages", "text"),
        [
            ([{"content": "x"}], "messages[0].role: expected a string, got None; correct"),
            ([*HELLO, {"role": 5}], "messages[1].role: expected a string, got int; correct"),
            (
                [{"role": "user", "content": 5}],
                "messages[0].content: expected a string or a list of parts, got int; correct",
            ),
            (
                [{"role": "user", "content": [{"type": "image_url"}]}],
                "messages[0].content[0]: expected a text part (this template takes no other), got "
                "'image_url'; correct",
            ),
            (
                [{"role": "user", "content": [{"type": "text", "text": 7}]}],
                "messages[0].content[0].text: expected a string, got int; correct",
            ),
            (
                [{"role": "user", "content": "x", "extra": {1, 2}}],
                "chat template: render: expected messages and tools of plain JSON, got",
            ),
        ],
    )
    def test_messages(self, make: Make, messages: list[Any], text: str) -> None:
        """A message that cannot be taken is refused by its place in the request."""
        with pytest.raises(TemplateError) as raised:
            make(CHATML).render(messages)
        assert text in str(raised.value)
        assert raised.value.kind == "message"

    def test_parts_that_are_none(self, make: Make) -> None:
        """Where a template takes parts, something without a type is still refused."""
        with pytest.raises(TemplateError, match="expected a part with a type, got int"):
            make(PARTS_ONLY).render([{"role": "user", "content": [5]}])

    @pytest.mark.parametrize("name", sorted(RESERVED))
    def test_reserved_variables(self, make: Make, name: str) -> None:
        """A request cannot set what the server sets."""
        with pytest.raises(TemplateError, match=f"chat_template_kwargs: .* got {name}, which"):
            make(CHATML).render(HELLO, extra={name: "x"})

    def test_process_lost_while_rendering(self, make: Make) -> None:
        """A process that dies under a render gives an error, and the next render another one."""
        template = make("{% if n %}" + LOOPS + "{% endif %}fine")
        template.render(HELLO)
        pid = template._process.pid
        assert pid is not None
        process = psutil.Process(pid)
        before = process.cpu_times().user

        def kill_at_work() -> None:
            while process.cpu_times().user < before + 0.1:
                time.sleep(0.001)
            process.kill()

        killing = threading.Thread(target=kill_at_work)
        killing.start()
        with pytest.raises(
            TemplateError, match="expected a text, the template process ended"
        ) as got:
            template.render(HELLO, extra={"n": 1})
        killing.join()
        assert got.value.kind == "too_large"
        assert template.render(HELLO) == "fine"

    def test_process_killed(self, make: Make) -> None:
        """A process that is killed from outside is replaced without an error."""
        template = make(CHATML)
        template.render(HELLO)
        pid = template._process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
        assert "hi" in template.render(HELLO)
        assert template._process.pid != pid


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
