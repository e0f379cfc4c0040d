"""Settings: where each comes from, and what each source may not say."""

import re
from pathlib import Path

import pytest

from radiance_abi.errors import ConfigurationError
from radiance_core.cli.serve import server_settings
from radiance_core.cli.settings import settings_text
from radiance_core.config import Config, load_config
from radiance_core.settings import BY_NAME, SETTINGS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "radiance.toml"


def load(file: Path | None = None, environment: dict[str, str] | None = None, **flags) -> Config:
    named = {k.replace("_", "-"): v for k, v in flags.items()}
    return load_config(named, file, environment or {})


def refused(text: str) -> "pytest.RaisesExc[ConfigurationError]":
    return pytest.raises(ConfigurationError, match=re.escape(text))


def test_flag_before_environment_before_file_before_default(file: Path) -> None:
    """Each source gives way to the one above it, and the answer says which it was."""
    file.write_text("# a comment\nport = 1\nhost = 'file'\ntemp = 0.5\n")
    c = load(file, {"RADIANCE_PORT": "2", "RADIANCE_HOST": "env"}, port=3)
    assert (c.number("port"), c.sources["port"]) == (3, "command line")
    assert (c.text("host"), c.sources["host"]) == ("env", "environment RADIANCE_HOST")
    assert (c.real("temp"), c.sources["temp"]) == (0.5, f"{file}:4")
    assert (c.number("threads"), c.sources["threads"]) == (0, "default")


def test_every_setting_can_come_from_everywhere(file: Path) -> None:
    """One table serves file and environment: each setting is read back from both."""
    for s in SETTINGS:
        real = 0.5 if s.least is None or s.most is None else (s.least + s.most) / 2
        samples = {"str": "'x'", "int": "3", "float": f"{real}", "bool": "true"}
        samples["list"] = "['a', 'b']"
        words = {"str": "x", "int": "3", "float": f"{real}", "bool": "yes", "list": "a, b"}
        values = {"str": "x", "int": 3, "float": real, "bool": True, "list": ("a", "b")}
        word, value = (s.choices[-1],) * 2 if s.choices else (words[s.kind], values[s.kind])
        sample = repr(word) if s.choices else samples[s.kind]
        for name in (s.name, s.name.replace("-", "_")):
            file.write_text(f"{name} = {sample}\n")
            assert load(file).values[s.name] == value
        found = load(None, {s.variable: word})
        assert found.values[s.name] == value
        assert found.sources[s.name] == f"environment {s.variable}"


def test_the_working_folders_file_is_taken(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """radiance.toml is read where the program starts, and only there."""
    monkeypatch.chdir(file.parent)
    assert load().sources["port"] == "default"
    file.write_text("port = 77\n")
    assert (load().number("port"), load().sources["port"]) == (77, "radiance.toml:1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "prot = 1",
            ":1: unknown setting 'prot'; did you mean 'port'? `radiance --help` lists",
        ),
        ("\n[server]\nport = 1", ":2: unknown setting 'server'"),
        ("x = 1\nport = = 2", "expected a TOML file: "),
        ("port = 'a'", ":1: port: expected a whole number, got 'a'"),
        ("port = true", ":1: port: expected a whole number, got True"),
        ("port = 1.5", ":1: port: expected a whole number, got 1.5"),
        ("port = 70000", ":1: port: expected 0 to 65535, got 70000"),
        ("temp = nan", ":1: temp: expected 0 to 2, got nan"),
        ("temp = inf", ":1: temp: expected 0 to 2, got inf"),
        ("temp = 'warm'", ":1: temp: expected a number, got 'warm'"),
        ("host = 3", ":1: host: expected text, got 3"),
        ("insecure = 'yes'", ":1: insecure: expected true or false, got 'yes'"),
        ("kernels = [1]", ":1: kernels: expected a list of texts, got [1]"),
        (
            "\n\napi-key = 12345",
            ":3: api-key: expected a list of texts, got a value of another type",
        ),
    ],
)
def test_what_a_file_may_not_say(file: Path, text: str, says: str) -> None:
    """Errors name file and line, the setting, what was expected and what stands there."""
    file.write_text(text)
    with refused(says) as caught:
        load(file)
    assert str(file) in str(caught.value)
    assert "12345" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that is not there or not text is named."""
    with refused(f"--config {tmp_path / 'none.toml'}: expected a TOML file: "):
        load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with refused("bad.toml: expected a TOML file: "):
        load(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("port", "x", "environment RADIANCE_PORT: port: expected a whole number, got 'x'"),
        ("port", "-1", "environment RADIANCE_PORT: port: expected 0 to 65535, got -1"),
        ("temp", "nan", "environment RADIANCE_TEMP: temp: expected 0 to 2, got nan"),
        ("temp", "a", "environment RADIANCE_TEMP: temp: expected a number, got 'a'"),
        ("insecure", "maybe", "RADIANCE_INSECURE: insecure: expected true or false, got 'maybe'"),
    ],
)
def test_what_the_environment_may_not_say(name: str, text: str, says: str) -> None:
    """Errors name the variable."""
    with refused(says):
        load(None, {BY_NAME[name].variable: text})


def test_flags_are_bounded_too() -> None:
    """A flag outside its bounds is refused by name."""
    with refused("command line: top-p: expected 0 to 1, got 1.5"):
        load(top_p=1.5)
    with refused("command line: temp: expected 0 to 2, got nan"):
        load(temp=float("nan"))
    with refused("command line: top-k: expected 0 to 2.14748e+09, got 2147483648"):
        load(**{"top-k": 2**31})


def test_a_key_that_is_empty() -> None:
    """A variable, a flag or a file that was to hold a key and holds none opens no server."""
    says = "api-key: expected one or more, got none; give a key, or leave the setting out"
    for text in ("", " ", ",", " , "):
        with refused(f"environment RADIANCE_API_KEY: {says}"):
            load(None, {"RADIANCE_API_KEY": text})
    with refused(f"command line: {says}"):
        load(**{"api-key": ()})
    assert load().names("api-key") == ()


def test_words_of_the_environment() -> None:
    """Bools have several spellings and lists are split at commas."""
    for word, value in (("1", True), ("TRUE", True), ("yes", True), ("0", False), ("", False)):
        assert load(None, {"RADIANCE_INSECURE": word}).flag("insecure") is value
    assert load(None, {"RADIANCE_KERNELS": " a,, b ,"}).names("kernels") == ("a", "b")
    assert load().names("kernels") == ()


def test_config_show_hides_secrets() -> None:
    """Every setting has a line with its value and source; a key's value is not shown."""
    c = load(None, {"RADIANCE_API_KEY": "s3cret,other"}, kernels=("a", "b"))
    text = settings_text(c)
    assert "s3cret" not in text
    lines = {line.split()[0]: line.split(None, 1)[1].strip() for line in text.splitlines()}
    assert set(lines) == set(BY_NAME)
    assert lines["api-key"].split(None, 1) == ["(hidden)", "environment RADIANCE_API_KEY"]
    assert lines["kernels"].split(None, 1) == ["a,b", "command line"]
    assert lines["port"].split() == ["8000", "default"]
    assert lines["model"] == "default"


def test_answers_that_can_never_run_together() -> None:
    """One request may ask for as many answers as can run and wait, and never for more than 128."""
    for seqs, queued, most in ((4, 8, 12), (4, 0, 36), (32, 0, 128), (1, 1, 2)):
        flags = {"max-num-seqs": seqs, "max-queued-requests": queued}
        assert server_settings(load(**flags)).max_choices == most
