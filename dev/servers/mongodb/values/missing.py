"""The value that stands for a field that is not there."""


class Missing:
    """A field that is not there."""


MISSING = Missing()
