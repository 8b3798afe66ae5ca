"""How large things are shown where somebody works with them: by a few figures, and not by their arrays."""

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping


class Shown(ABC):
    """Has a line of figures for a terminal, and a small table of the same for a notebook."""

    __slots__ = ()

    @abstractmethod
    def _figures(self) -> Mapping[str, object]:
        """What to show, by its name. None is left out."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(f'{name} {value}' for name, value in self._texts())}>"

    def _repr_html_(self) -> str:
        """For notebooks, which look for a method of this name."""
        rows = "".join(
            f"<tr><th style='text-align: left'>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in self._texts()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"

    def _texts(self) -> list[tuple[str, str]]:
        return [
            (name, _number(value) if isinstance(value, float) else str(value))
            for name, value in self._figures().items()
            if value is not None
        ]


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
