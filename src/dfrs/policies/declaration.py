"""How policies declare their names and options, and the one parser that makes policies of names.

A name is one of a family's names and options behind slashes, each at most once and in any order:

    NAME[/KEY[=VALUE]]…

A family stands beside the code of its policies. From it come `find_policy`, the nearest names in its errors, the
completion of `--policy`, `dfrs policies` and the reference page. So a new option is one `Option` and one field of what
the policy is built from.
"""

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from dfrs.model.decisions import Policy
from dfrs.model.errors import InputError

S = TypeVar("S")
"""What the policies of a family are built from: a frozen dataclass, perhaps the policy itself."""

Fields = Mapping[str, object]
"""Fields of that dataclass, and what they become."""

_NONE: Fields = {}
_MOST_HINTED = 12


class Values(Protocol):
    """What may stand behind an option's key, and what it means."""

    @property
    def form(self) -> str:
        """What stands behind the key in a listing: `=S`."""
        ...

    @property
    def rule(self) -> str:
        """Unit and range, in words."""
        ...

    def read(self, key: str, text: str | None, /) -> Fields:
        """The fields for what stands behind `=`, None where there is no `=`. Raises ValueError with the rule."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A finite number, for one field."""

    field: str
    unit: str = ""
    letter: str = "X"
    zero: bool = False
    """Whether 0 is allowed."""
    most: float = math.inf
    example: str = "10"
    absent: float | None = None
    """Its value where the key stands alone; None: it must not."""
    also: Fields = dataclasses.field(default_factory=lambda: _NONE)
    """What the key says besides."""
    words: Mapping[str, Fields] = dataclasses.field(default_factory=dict[str, Fields])
    """What may stand there instead."""

    @property
    def form(self) -> str:
        """With its letter."""
        value = f"={'|'.join((self.letter, *self.words))}"
        return value if self.absent is None else f"[{value}]"

    @property
    def rule(self) -> str:
        """Unit and range."""
        return " or ".join((f"{self.unit or 'number'} {self._range}", *self.words))

    @property
    def _range(self) -> str:
        least = f"{'of at least' if self.zero else 'above'} 0"
        return least if self.most == math.inf else f"{least}, at most {self.most:g}"

    def read(self, key: str, text: str | None, /) -> Fields:
        """The number."""
        if text is not None and text in self.words:
            return self.words[text]
        if text is None and self.absent is not None:
            return {self.field: self.absent, **self.also}
        try:
            number = float(text or "")
        except ValueError:
            number = math.nan
        if not (number > 0.0 or (self.zero and number == 0.0)) or number == math.inf or number > self.most:
            words = "".join(f", or as {word}" for word in self.words)
            raise ValueError(f"must be given as a number {self._range}, as in {key}={self.example}{words}")
        return {self.field: number, **self.also}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number of at least 1 for one field, or one of some words."""

    field: str
    words: Mapping[str, Fields] = dataclasses.field(default_factory=dict[str, Fields])

    @property
    def form(self) -> str:
        """The letter N, or a word."""
        return f"={'|'.join(('N', *self.words))}"

    @property
    def rule(self) -> str:
        """Range."""
        return " or ".join(("whole number of at least 1", *self.words))

    def read(self, _key: str, text: str | None, /) -> Fields:
        """The number."""
        if text is not None and text in self.words:
            return self.words[text]
        if not re.fullmatch(r"[1-9][0-9]{0,8}", text or ""):
            raise ValueError("must be a whole number of at least 1")
        return {self.field: int(text or "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share above 0, at most 1, for one field."""

    field: str

    @property
    def form(self) -> str:
        """The letter X."""
        return "=X"

    @property
    def rule(self) -> str:
        """Range."""
        return "share above 0, at most 1"

    def read(self, _key: str, text: str | None, /) -> Fields:
        """The share."""
        if not re.fullmatch(r"[0-9]*\.?[0-9]+", text or "") or not 0.0 < float(text or "") <= 1.0:
            raise ValueError("must be a share above 0, at most 1")
        return {self.field: float(text or "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """The key alone: the field is then `value`."""

    field: str
    value: object = True
    why: str = ""
    """Why there is nothing to give."""

    @property
    def form(self) -> str:
        """Nothing."""
        return ""

    @property
    def rule(self) -> str:
        """Nothing."""
        return ""

    def read(self, _key: str, text: str | None, /) -> Fields:
        """The value."""
        if text is not None:
            raise ValueError(f"takes no value{self.why and f': {self.why}'}")
        return {self.field: self.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of some words, for one field."""

    field: str
    values: Mapping[str, tuple[object, str, str]]
    """By its word: the value, what it means, and where that is from."""
    must: str = ""
    """What the error says must be; by default the words."""

    @property
    def form(self) -> str:
        """The words."""
        return f"={'|'.join(self.values)}"

    @property
    def rule(self) -> str:
        """The words."""
        return " or ".join(self.values)

    def read(self, key: str, text: str | None, /) -> Fields:
        """The word's value."""
        if text is None or text not in self.values:
            raise ValueError(f"must be {self.must or f'{key}={self.rule}'}")
        return {self.field: self.values[text][0]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: what stands behind a slash."""

    key: str
    values: Values
    meaning: str = ""
    """In a phrase; empty where the words of a Choice have meanings of their own."""
    source: str = ""
    default: str = ""
    """As it would be written behind the key, or in words; empty: as if the option did not exist."""
    group: str = ""
    """What kind of option it is; by default the group of its family."""
    of: tuple[str, ...] = ()
    """Names, or kinds of names, that have this option; empty: all of the family."""
    about: str = ""
    """What it decides, for options of which only one can be given; by default the key."""
    listed: str = ""
    """How it is listed, where it stands for several options; one whose `hidden` is set stands for itself nowhere."""
    hidden: bool = False

    @property
    def hint(self) -> str:
        """The key, and whether something must follow."""
        return f"{self.key}=…" if self.values.form.startswith("=") else self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Generic[S]):
    """One name of a family's policies."""

    name: str
    start: S
    """What the policy is built from where no option is given."""
    meaning: str = ""
    """In a phrase; empty: it is not listed."""
    source: str = ""
    group: str = ""
    """By default that of its family."""
    kind: str = ""
    """The name that it is a variant of: it has the same options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row of the list of policies: a name, or an option."""

    name: str
    group: str
    meaning: str
    source: str
    value: str
    """Unit and range of an option's value; empty where it has none, and for names."""
    default: str
    policies: tuple[str, ...]
    """For an option that not all policies of the family have: which ones do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Generic[S]):
    """Policies that are built in the same way, from names with the same options."""

    group: str
    names: Sequence[Name[S]]
    build: Callable[[str, S], Policy]
    """Makes the policy of a whole name. Raises ValueError with the rule where options do not go together."""
    options: Sequence[Option] = ()
    many: bool = False
    """Whether its options are listed without saying whose they are, since the family is what most names are of."""

    def find(self, name: str) -> Policy:
        """The policy of a name that begins with one of the family's. Raises InputError with the rule that it breaks."""
        head, *parts = self._split(name)
        chosen = next(each for each in self.names if each.name == head)
        options = {option.key: option for option in self._options_of(chosen)}
        if parts and not options:
            raise InputError(f'policy "{name}": {head} has no parts')
        start, seen = chosen.start, set[str]()
        for part in parts:
            key, equals, value = part.partition("=")
            if key not in options:
                raise InputError(f'policy "{name}": part "{part}": {self._unknown(key, options)}')
            about = options[key].about or key
            if about in seen:
                raise InputError(f'policy "{name}": part "{part}": there is another part for {about}')
            seen.add(about)
            try:
                fields: Mapping[str, Any] = options[key].values.read(key, value if equals else None)
            except ValueError as error:
                raise InputError(f'policy "{name}": part "{part}": {error}') from None
            template: Any = start
            start = replace(template, **fields)
        try:
            return self.build(name, start)
        except ValueError as error:
            raise InputError(f'policy "{name}": {error}') from None

    def _split(self, name: str) -> list[str]:
        """The parts of a name; a slash within a value that an option has does not end a part."""
        whole = [
            f"{option.key}={text}"
            for option in self.options
            if isinstance(option.values, Choice)
            for text in option.values.values
            if "/" in text
        ]
        parts: list[str] = []
        for part in name.split("/"):
            if parts and any(f"{parts[-1]}/{part}".startswith(value) for value in whole if parts[-1] + "/" in value):
                parts[-1] = f"{parts[-1]}/{part}"
            else:
                parts.append(part)
        return parts

    def _options_of(self, name: Name[S]) -> list[Option]:
        return [option for option in self.options if not option.of or {name.name, name.kind} & {*option.of}]

    def _unknown(self, key: str, options: Mapping[str, Option]) -> str:
        """What is wrong with a part of that key."""
        others = next((option.of for option in self.options if option.key == key), ())
        if others:
            return f"{key} is for {listed(others)}"
        near = nearest(key, list(options), cutoff=0.5)
        if near:
            return f"there is no such part; did you mean {' or '.join(options[each].hint for each in near)}?"
        hints = [option.hint for option in options.values()]
        more = ", …" if len(hints) > _MOST_HINTED else ""
        return f"there is no such part; parts are {', '.join(hints[:_MOST_HINTED])}{more}"

    def complete(self, name: str) -> Iterator[str]:
        """Names that begin with `name`, which has a head of this family and a slash at least."""
        *before, last = self._split(name)
        chosen = next(each for each in self.names if each.name == before[0])
        options = {option.key: option for option in self._options_of(chosen)}
        given = {part.partition("=")[0] for part in before[1:]}
        taken = {options[key].about or key for key in given if key in options}
        for option in options.values():
            if (option.about or option.key) in taken:
                continue
            words = option.values.values if isinstance(option.values, Choice) else ()
            ends = [f"{option.key}={word}" for word in words] or [option.hint.removesuffix("…")]
            yield from ("/".join((*before, end)) for end in ends if end.startswith(last))

    def entries(self) -> Iterator[Entry]:
        """What is to be listed: the names, then the options."""
        for each in self.names:
            if each.meaning:
                yield Entry(
                    name=each.name,
                    group=each.group or self.group,
                    meaning=each.meaning,
                    source=each.source,
                    value="",
                    default="",
                    policies=(),
                )
        for option in self.options:
            if option.hidden:
                continue
            owners = option.of or (() if self.many else tuple(each.name for each in self.names if each.meaning))
            values = option.values
            rows = [(option.listed or f"/{option.key}{values.form}", option.meaning, option.source, values.rule)]
            if isinstance(values, Choice):
                rows = [
                    (f"/{option.key}={word}", meaning, source, "")
                    for word, (_, meaning, source) in values.values.items()
                ]
            for name, meaning, source, rule in rows:
                yield Entry(
                    name=name,
                    group=option.group or self.group,
                    meaning=meaning,
                    source=source,
                    value=rule,
                    default=option.default,
                    policies=owners,
                )


def nearest(word: str, known: Sequence[str], *, cutoff: float) -> list[str]:
    """At most three of `known` that look like `word`, the nearest first; capitals do not matter."""
    upper = {each.upper(): each for each in reversed(known)}
    ordered = list(dict.fromkeys(each.upper() for each in known))
    return [upper[each] for each in difflib.get_close_matches(word.upper(), ordered, n=3, cutoff=cutoff)]


def listed(words: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
