"""Names of levels, which become those of NumPyro sites."""

from typing import Any

from .messages import short

__all__ = ["RESERVED_NAMES", "check_name"]

LONGEST_NAME = 100  # letters
RESERVED_NAMES = ("reward", "reward_noise", "observation")


def check_name(name: Any) -> None:
    """Refuse a name that no site can have."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"level name {short(name)}; expected letters, digits and underscores, such as 'movie': it "
            "becomes the name of a NumPyro site"
        )
    if len(name) > LONGEST_NAME:
        raise ValueError(
            f"level name {short(name, 40)} has {len(name):,} letters; expected at most {LONGEST_NAME}"
        )
    if name in RESERVED_NAMES:
        raise ValueError(
            f"level name '{name}' is reserved (as are {', '.join(RESERVED_NAMES)}); the program has "
            "a site or plate of that name: choose another"
        )
