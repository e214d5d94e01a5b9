"""What alara raises."""

from __future__ import annotations

#: What the binary and the engine put before what a person can do.
HINT = "\nhint: "


class Error(Exception):
    """Something can't be done, and this says what it is, where, and how it can be mended.

    >>> import alara
    >>> try:
    ...     alara.Engine("no-such-model")
    ... except alara.Error as error:
    ...     print(error.what)
    ...     print(error.remedy)
    there is no model file no-such-model
    `alara models list` tells the names that are known
    """

    def __init__(self, what: str, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where, remedy)
        #: What went wrong.
        self.what = what
        #: The file, model or team that it is about; empty where there is none.
        self.where = where
        #: What can be done about it; empty where nobody knows.
        self.remedy = remedy

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where and self.where not in self.what else ""
        return place + self.what + (HINT + self.remedy if self.remedy else "")


def told(text: str, where: str = "") -> Error:
    """The error that the binary told on its standard error."""
    _, _, last = ("\n" + text.strip()).rpartition("\nerror: ")
    what, _, remedy = (last or text.strip()).partition(HINT)
    return Error(what.strip(), where, remedy.strip())
