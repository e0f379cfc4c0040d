"""An environment for documents: what this interpreter has, and room for what a page installs."""

import sysconfig
import venv
from pathlib import Path

COMMANDS = {
    "radiance": ("radiance_core.cli.entry", "main"),
    "rad-kbench": ("radiance_core.kbench.__main__", "main"),
    "rad-schemas": ("radiance_core.kbench.__main__", "schemas"),
    "rad-tune": ("radiance_core.tune.__main__", "main"),
}


def overlay(folder: Path) -> Path:
    """Make an environment that sees the packages of this one; return its folder of commands.

    What pages install with pip goes into the new environment only.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    own = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    packages = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    lines = "".join(f"import site; site.addsitedir({p!r})\n" for p in dict.fromkeys(packages))
    (own / "packages_of_the_checks.pth").write_text(lines, encoding="utf-8")
    for name, (module, function) in COMMANDS.items():
        command = folder / "bin" / name
        script = (
            f"#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        command.write_text(script, encoding="utf-8")
        command.chmod(0o755)
    return folder / "bin"
