"""``radiance config show``."""

from radiance_core.config import Config, spell
from radiance_core.settings import SETTINGS


def settings_text(config: Config) -> str:
    """Return one line a setting: name, value, where it came from."""
    lines = []
    for s in SETTINGS:
        shown = spell(config.values[s.name])
        if s.secret and shown:
            shown = "(hidden)"
        lines.append(f"{s.name:<32} {shown:<24} {config.sources[s.name]}")
    return "\n".join(lines)
