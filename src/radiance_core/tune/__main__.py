"""Where ``rad-tune`` begins, which is also ``python -m radiance_core.tune``."""

from radiance_core.cli.entry import begin


def main() -> None:
    """Run the command line of ``rad-tune``."""
    begin()
    from radiance_core.cli.command import run_command
    from radiance_core.config import hold_back_matrix_threads

    hold_back_matrix_threads()  # numpy, which comes with the command, looks once
    from radiance_core.tune.main import tune

    run_command(tune, "rad-tune")


if __name__ == "__main__":
    main()
