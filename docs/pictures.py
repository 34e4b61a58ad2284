"""Draw the pictures of the documentation: run the code of `gallery.md`, which saves them."""

import os
import re
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Run every Python block of the gallery in `docs/pictures`."""
    text = HERE.joinpath("gallery.md").read_text(encoding="utf-8")
    os.chdir(HERE / "pictures")
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "gallery.md", "exec"), {"__name__": "gallery"})


if __name__ == "__main__":
    main()
