import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-help",
        action="store_true",
        help="put the present text of every --help into the pages, then follow them",
    )
