"""A page whose figures come from a run: what stands between two marks is replaced."""

from pathlib import Path

SHOWN = "decode against bandwidth and prefill against the peak of its products"
BEGIN, END = "<!-- figures of a run -->", "<!-- end of figures -->"


def around(page: Path) -> tuple[str, str]:
    """Return what stands before and after the figures of a page.

    Raises:
        ValueError: the page has not both marks, once each and in order.
    """
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or END in after or BEGIN in rest:
        raise ValueError(f"{page}: expected one {BEGIN} and after it one {END}; put them in")
    return before, after


def put_into(page: Path, text: str, picture: str) -> None:
    """Replace the figures of a page, and its picture beside it."""
    before, after = around(page)
    drawn = page.parent / "images" / f"{page.stem}.svg"
    drawn.parent.mkdir(exist_ok=True)
    drawn.write_text(picture, "utf-8")
    image = f"![{SHOWN}](images/{drawn.name})"
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{image}\n\n{END}{after}", "utf-8")
