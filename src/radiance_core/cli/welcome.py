"""What ``radiance`` alone prints: machine, plugins, models at hand, what to type next."""

from pathlib import Path

from radiance_abi.errors import RadianceError
from radiance_core import hardware
from radiance_core.cli.plugins import NONE_INSTALLED
from radiance_core.discover import ARCHITECTURES, KERNELS, core_version, installed

MOST_OPENED = 12


def welcome(folder: Path = Path()) -> str:
    """Return the screen; imports no plugin."""
    m = hardware.machine()
    models, broken = _models(folder)
    kernels = ", ".join(f.name for f in installed(KERNELS)) or NONE_INSTALLED
    families = ", ".join(f.name for f in installed(ARCHITECTURES)) or "none"
    example = models[0] if models else "MODEL.gguf"
    commands = {
        f"radiance --model {example}": "serve it on http://127.0.0.1:8000",
        f"radiance chat {example}": "talk to it here",
        "radiance doctor": "report on this machine and its plugins",
    }
    width = max(map(len, commands))
    damaged = f"\ndamaged or cut short: {', '.join(broken)}" if broken else ""
    return (
        f"radiance {core_version()}   {m.cpu} ({' '.join(m.features)})  {m.num_cpus} cores  "
        f"{m.memory.available / 2**30:.1f} GiB free\n"
        f"kernels: {kernels}\narchitecture plugins: {families}\n"
        f"models here: {', '.join(models) or 'none'}{damaged}\n\n"
        + "\n".join(f"  {command:<{width}}   {what}" for command, what in commands.items())
    )


def _models(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of models here, and of files that look like one and cannot be read."""
    from radiance_core.model_files import open_checkpoint

    files = sorted(folder.glob("*.gguf"))
    models, broken = [], []
    for path in files[:MOST_OPENED]:
        try:
            open_checkpoint(path)
        except RadianceError:
            broken.append(path.name)
        else:
            models.append(path.name)
    models += [p.name for p in files[MOST_OPENED:]]
    return models + sorted(p.parent.name for p in folder.glob("*/config.json")), broken
