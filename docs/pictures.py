"""Draw the pictures of the documentation: run the code of the pages that save them."""

import os
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGES = ("gallery.md", "how-to/structured-priors.md", "matched-moments.md")


def main() -> None:
    """Run every Python block of these pages in `docs/pictures`."""
    os.chdir(HERE / "pictures")
    for page in PAGES:
        text = HERE.joinpath(page).read_text(encoding="utf-8")
        for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
            exec(compile(block, page, "exec"), {"__name__": "page"})


if __name__ == "__main__":
    main()
