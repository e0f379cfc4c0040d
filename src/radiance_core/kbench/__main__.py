"""Where ``rad-kbench``, which ``python -m radiance_core.kbench`` is, and ``rad-schemas`` begin."""

from radiance_core.cli.entry import begin


def main() -> None:
    """Run the command line of ``rad-kbench``."""
    begin()
    from radiance_core.cli.command import run_command
    from radiance_core.config import hold_back_matrix_threads

    hold_back_matrix_threads()  # numpy, which comes with the command, looks once
    from radiance_core.kbench.main import kbench

    run_command(kbench, "rad-kbench")


def schemas() -> None:
    """Run the command line of ``rad-schemas``."""
    begin()
    from radiance_core.cli.command import run_command
    from radiance_core.config import hold_back_matrix_threads

    hold_back_matrix_threads()  # numpy, which comes with the command, looks once
    from radiance_core.kbench.main import schemas as command

    run_command(command, "rad-schemas")


if __name__ == "__main__":
    main()
