"""The table of settings: one entry says everything about each.

The command line, the environment, ``radiance.toml`` and ``radiance config show`` are made from it;
``config`` reads their values.
"""

from dataclasses import dataclass

from radiance_abi.kv_cache import CACHE_DTYPES

SettingValue = str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    ``name``: as the flag without dashes and as the key of the file. ``kind``: str, int, float,
    bool, or list (comma-separated text). ``least``, ``most``: bounds of a number.
    """

    name: str
    kind: str
    default: SettingValue
    help: str
    least: float | None = None
    most: float | None = None
    secret: bool = False
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return "RADIANCE_" + self.name.upper().replace("-", "_")


INT31 = 2**31 - 1
LEVELS = ("debug", "info", "warning", "error")
# What requests get that state nothing; the model's own stand between these and the built-in ones.
SAMPLING_SETTINGS: tuple[Setting, ...] = (
    Setting("temp", "float", 1.0, "temperature of requests that state none", 0, 2),
    Setting("top-p", "float", 1.0, "top-p of requests that state none", 0, 1),
    Setting("top-k", "int", 0, "top-k of requests that state none; 0 keeps all", 0, INT31),
    Setting("min-p", "float", 0.0, "min-p of requests that state none", 0, 1),
    Setting("typical-p", "float", 1.0, "typical-p of requests that state none", 0, 1),
    Setting("repetition-penalty", "float", 1.0, "divisor of the logits of tokens seen", 0.01, 100),
    Setting("frequency-penalty", "float", 0.0, "subtracted once per token seen", -2, 2),
    Setting("presence-penalty", "float", 0.0, "subtracted of tokens seen", -2, 2),
    Setting("repeat-last-n", "int", 64, "tokens that penalties look back on; -1 is all", -1, INT31),
    Setting("xtc-probability", "float", 0.0, "chance that XTC drops likely tokens", 0, 1),
    Setting("xtc-threshold", "float", 0.1, "least probability of a token XTC drops", 0, 1),
    Setting("dry-multiplier", "float", 0.0, "strength of DRY against repetition", 0, 100),
    Setting("dry-base", "float", 1.75, "growth of DRY with each repeated token", 1, 100),
    Setting("dry-allowed-length", "int", 2, "tokens that may repeat without DRY", 1, INT31),
    Setting("dry-penalty-last-n", "int", -1, "tokens that DRY looks back on; -1 is all", -1, INT31),
    Setting(
        "dry-sequence-breakers", "str", None, "JSON list of texts over which DRY does not look"
    ),
    Setting(
        "default-max-tokens",
        "str",
        "auto",
        "tokens to generate for requests that state none; auto is the rest of the context",
    ),
    Setting("max-tokens-cap", "int", 0, "most tokens of any answer; 0 for no cap", 0, INT31),
)
SETTINGS: tuple[Setting, ...] = (
    Setting("model", "str", None, "GGUF file, safetensors folder, or hub id to serve"),
    Setting(
        "kernels", "list", None, "kernel libraries in order of preference; others are not loaded"
    ),
    Setting("max-num-seqs", "int", 32, "sequences in one step", 1, 4096),
    Setting("max-num-batched-tokens", "int", 512, "tokens in one step", 1, 65536),
    Setting(
        "max-model-len", "int", 0, "tokens of one conversation; 0 takes the model's own", 0, 2**31
    ),
    Setting(
        "max-queued-requests",
        "int",
        0,
        "requests that may wait; 0 is 8 for each sequence",
        0,
        2**20,
    ),
    Setting(
        "max-queued-tokens", "int", 0, "tokens of requests that may wait; 0 is any number", 0, 2**40
    ),
    Setting(
        "num-speculative-tokens",
        "int",
        0,
        "tokens that are guessed ahead from the text so far; answers stay the same. Pays where an "
        "answer repeats what was said before (1.7 times as fast), in free text it does not",
        0,
        64,
    ),
    Setting("no-prefix-cache", "bool", False, "compute every prompt anew, whatever was cached"),
    Setting(
        "kv-cache-dtype",
        "str",
        "auto",
        "numbers of the conversation cache: auto (what the kernels prefer), f32, bf16, f16, or "
        "packed ones that are less exact: int8, fp8, k8_v4, fp8_v4, k6_v4",
        choices=("auto", *CACHE_DTYPES),
    ),
    Setting(
        "activations",
        "str",
        "int16",
        "numbers that integer weights meet; int8 takes a quarter off the time of long prompts, "
        "with bf16 weights (as bf16, where kernels gain by it) two fifths, and is less exact",
        choices=("int16", "int8"),
    ),
    Setting(
        "tuning",
        "str",
        "auto",
        "file by rad-tune with values for the axes of kernels; auto takes this machine's if there "
        "is one, none takes none",
    ),
    Setting("gpu-headroom-mib", "int", 96, "memory left unclaimed, MiB", 0, 2**24),
    Setting(
        "memory-mib", "int", 0, "memory to plan with, MiB; 0 is half of the machine's", 0, 2**24
    ),
    Setting(
        "threads", "int", 0, "threads that compute; 0 is one for each usable processor", 0, 1024
    ),
    Setting("host", "str", "127.0.0.1", "address to listen on"),
    Setting("port", "int", 8000, "port to listen on; 0 lets the system choose", 0, 65535),
    Setting("api-key", "list", (), "accepted API keys, separated by commas", secret=True),
    Setting("insecure", "bool", False, "allow other machines in without a key"),
    Setting(
        "served-model-name", "list", (), "names of the model in requests, the first is reported"
    ),
    Setting("allowed-host", "list", (), "further values of the Host header to accept"),
    Setting("cors-origin", "list", (), "origins of browser pages that may call; * is any"),
    Setting("strict-requests", "bool", False, "refuse requests with unknown fields"),
    Setting("max-body-mib", "int", 32, "largest request body, MiB", 1, 4096),
    Setting(
        "drain-timeout", "float", 30.0, "seconds that running requests get at the end", 0, 86400
    ),
    Setting(
        "generation-config",
        "str",
        None,
        "JSON file of sampling defaults, over the model's own; none takes neither",
    ),
    Setting(
        "tool-format",
        "str",
        "auto",
        "how the model writes tool calls; auto finds out from its chat template",
        choices=(
            "auto",
            "hermes",
            "llama3-json",
            "mistral-list",
            "mistral",
            "functionary",
            "qwen3-coder",
            "glm",
            "deepseek",
            "deepseek-fenced",
            "granite-list",
        ),
    ),
    Setting(
        "reasoning-format",
        "str",
        "auto",
        "auto parts the model's thoughts from its answer, none leaves them in the text",
        choices=("auto", "none"),
    ),
    *SAMPLING_SETTINGS,
    Setting("debug-graph", "bool", False, "print every node and its kernels, and exit"),
    Setting("debug-selection", "bool", False, "print which kernel serves what, then go on"),
    Setting("debug-placement", "bool", False, "print where every byte goes, then go on"),
    Setting(
        "debug-accept-reference-kernels", "bool", False, "serve through reference libraries, slowly"
    ),
    Setting("live", "bool", False, "show the server's numbers as they move"),
    Setting(
        "otlp-endpoint", "str", None, "OpenTelemetry collector to send traces to, an http address"
    ),
    Setting("log-level", "str", "info", "debug, info, warning or error", choices=LEVELS),
    Setting(
        "log-format", "str", "text", "form of log lines: text or json", choices=("text", "json")
    ),
)
BY_NAME = {s.name: s for s in SETTINGS}
