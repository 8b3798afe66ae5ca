"""Mutations: single changes to a function, as operators on its syntax tree, and what proves that tests tell them.

A mutation is addressed by what it changes and which of those it is, from 0, in the order of the source. So it survives
another layout and most renames. `Rewrite` alone names an expression by its text, where no operator says the same.
"""

import ast
import copy
import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from dfrs.kernels import jit
from tests import cases
from tests.naive import compare

CASES = 200
_COMPARISONS = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE, "==": ast.Eq, "!=": ast.NotEq}
_ARITHMETIC = {
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.Div,
    "//": ast.FloorDiv,
    "<<": ast.LShift,
    ">>": ast.RShift,
    "|": ast.BitOr,
    "^": ast.BitXor,
    "&": ast.BitAnd,
}
_OPERATORS = {**_COMPARISONS, **_ARITHMETIC, "and": ast.And, "or": ast.Or}


class AddressError(Exception):
    """There is nothing at a mutation's address: the function has changed, choose another mutation."""


def in_order(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes, as they stand in the source."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        yield from in_order(child)


def _body(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes of the function's body but for its docstring."""
    (function,) = tree.body
    begin = 1 if ast.get_docstring(function) is not None else 0
    for statement in function.body[begin:]:
        yield from in_order(statement)


def _nth(tree, fits, nth, what):
    found = [node for node in _body(tree) if fits(node)]
    if nth >= len(found):
        has = "; ".join(ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__ for node in found)
        raise AddressError(f"no {what} number {nth}: there are {len(found)}{': ' if has else ''}{has[:400]}")
    return found[nth]


def _put(tree, old, new):
    """`new` in the place of the node `old`."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list):
                for k, each in enumerate(value):
                    if each is old:
                        value[k] = new
                        return


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _literal(value) -> ast.expr:
    return _expression(repr(value))


def _symbol(node) -> str:
    """The operator of a comparison, of arithmetic (also in place) or of logic."""
    op = node.ops[0] if isinstance(node, ast.Compare) else getattr(node, "op", None)
    return next((text for text, kind in _OPERATORS.items() if type(op) is kind), "")


def _parts(node) -> list[ast.expr]:
    """What an expression is made of."""
    match node:
        case ast.BinOp():
            return [node.left, node.right]
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.BoolOp():
            return node.values
        case ast.UnaryOp():
            return [node.operand]
        case ast.IfExp():
            return [node.body, node.orelse]
        case ast.Call():
            return node.args
        case ast.Subscript():
            return [node.value]
        case ast.Assign() | ast.AugAssign():
            return [node.value]
        case _:
            return []


def _is_simple(node) -> bool:
    return isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Continue | ast.Break)


@dataclass(frozen=True)
class Mutation:
    """One change."""

    def apply(self, tree: ast.Module) -> None:
        """Change `tree`, a module of one function. Raises AddressError."""
        raise NotImplementedError


@dataclass(frozen=True)
class Operator(Mutation):
    """The nth operator `old` becomes `new`: a comparison, arithmetic (also in place), `and`, `or`."""

    old: str
    new: str
    nth: int = 0

    def apply(self, tree):
        node = _nth(tree, lambda each: _symbol(each) == self.old, self.nth, f"operator {self.old}")
        if isinstance(node, ast.Compare):
            node.ops[0] = _OPERATORS[self.new]()
        else:
            node.op = _OPERATORS[self.new]()


@dataclass(frozen=True)
class Constant(Mutation):
    """The nth number, word or truth value `old` becomes `new`."""

    old: Any
    new: Any
    nth: int = 0

    def apply(self, tree):
        def fits(node):
            return isinstance(node, ast.Constant) and (type(node.value), node.value) == (type(self.old), self.old)

        _put(tree, _nth(tree, fits, self.nth, f"constant {self.old!r}"), _literal(self.new))


@dataclass(frozen=True)
class Condition(Mutation):
    """The nth condition, of `if`, `while` or a conditional expression, becomes `value`; None: its opposite."""

    nth: int
    value: bool | None = None

    def apply(self, tree):
        node = _nth(tree, lambda each: isinstance(each, ast.If | ast.While | ast.IfExp), self.nth, "condition")
        if self.value is not None:
            node.test = ast.Constant(self.value)
        elif isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not):
            node.test = node.test.operand
        else:
            node.test = ast.UnaryOp(ast.Not(), node.test)


_KINDS = {
    "arithmetic": ast.BinOp,
    "comparison": ast.Compare,
    "logic": ast.BoolOp,
    "call": ast.Call,
    "sign": ast.UnaryOp,
    "choice": ast.IfExp,
    "element": ast.Subscript,
    "assignment": ast.Assign | ast.AugAssign,
    "name": ast.Name,
}


def _of_kind(tree, kind, nth):
    return _nth(tree, lambda each: isinstance(each, _KINDS[kind]), nth, kind)


def _with_parts(tree, kind, nth, part):
    """The nth expression of a kind, and its parts, of which there is one of number `part`."""
    node = _of_kind(tree, kind, nth)
    parts = _parts(node)
    if part >= len(parts):
        raise AddressError(f"{ast.unparse(node)}: has {len(parts)} parts")
    return node, parts


@dataclass(frozen=True)
class Keep(Mutation):
    """Of the nth expression of a kind only its part number `part` is left: `a * b` becomes `a`, `max(a, b)` `b`."""

    kind: str
    nth: int
    part: int

    def apply(self, tree):
        node, parts = _with_parts(tree, self.kind, self.nth, self.part)
        _put(tree, node, parts[self.part])


@dataclass(frozen=True)
class Omit(Mutation):
    """The nth `and` or `or` loses its part number `part`."""

    nth: int
    part: int

    def apply(self, tree):
        node = _of_kind(tree, "logic", self.nth)
        if self.part >= len(node.values):
            raise AddressError(f"{ast.unparse(node)}: has {len(node.values)} parts")
        del node.values[self.part]
        if len(node.values) == 1:
            _put(tree, node, node.values[0])


@dataclass(frozen=True)
class Value(Mutation):
    """The nth expression of a kind becomes `value`; of an assignment, what is assigned or added."""

    kind: str
    nth: int
    value: Any

    def apply(self, tree):
        node = _of_kind(tree, self.kind, self.nth)
        _put(tree, node.value if self.kind == "assignment" else node, _literal(self.value))


@dataclass(frozen=True)
class Part(Mutation):
    """Part number `part` of the nth expression of a kind becomes `value`."""

    kind: str
    nth: int
    part: int
    value: Any

    def apply(self, tree):
        _, parts = _with_parts(tree, self.kind, self.nth, self.part)
        _put(tree, parts[self.part], _literal(self.value))


@dataclass(frozen=True)
class Shift(Mutation):
    """Argument number `part` of the nth call becomes larger by `by`, as a bound of `range`."""

    nth: int
    part: int
    by: int

    def apply(self, tree):
        node = _of_kind(tree, "call", self.nth)
        if self.part >= len(node.args):
            raise AddressError(f"{ast.unparse(node)}: has {len(node.args)} arguments")
        old = node.args[self.part]
        node.args[self.part] = ast.BinOp(old, ast.Add() if self.by > 0 else ast.Sub(), ast.Constant(abs(self.by)))


@dataclass(frozen=True)
class Negate(Mutation):
    """Part number `part` of the nth expression of a kind gets the other sign."""

    kind: str
    nth: int
    part: int

    def apply(self, tree):
        _, parts = _with_parts(tree, self.kind, self.nth, self.part)
        _put(tree, parts[self.part], ast.UnaryOp(ast.USub(), parts[self.part]))


@dataclass(frozen=True)
class Swap(Mutation):
    """Two parts of the nth expression of a kind change places."""

    kind: str
    nth: int
    one: int = 0
    other: int = 1

    def apply(self, tree):
        node = _of_kind(tree, self.kind, self.nth)
        parts = _parts(node)
        if max(self.one, self.other) >= len(parts):
            raise AddressError(f"{ast.unparse(node)}: has {len(parts)} parts")
        one, other = parts[self.one], parts[self.other]
        _put(tree, one, marker := ast.Constant(None))
        _put(tree, other, one)
        _put(tree, marker, other)


@dataclass(frozen=True)
class Call(Mutation):
    """The nth call of the function `old` is one of `new`."""

    old: str
    new: str
    nth: int = 0

    def apply(self, tree):
        def fits(node):
            return isinstance(node, ast.Call) and ast.unparse(node.func) == self.old

        _nth(tree, fits, self.nth, f"call of {self.old}").func = _expression(self.new)


@dataclass(frozen=True)
class Drop(Mutation):
    """The nth statement of one line is left out."""

    nth: int

    def apply(self, tree):
        _put(tree, _nth(tree, _is_simple, self.nth, "statement"), ast.Pass())


@dataclass(frozen=True)
class Assign(Mutation):
    """The nth assignment in place (`+=`) forgets what was there."""

    nth: int

    def apply(self, tree):
        node = _nth(tree, lambda each: isinstance(each, ast.AugAssign), self.nth, "assignment in place")
        _put(tree, node, ast.Assign([node.target], node.value, lineno=0))


@dataclass(frozen=True)
class Backwards(Mutation):
    """The nth loop goes the other way round."""

    nth: int

    def apply(self, tree):
        node = _nth(tree, lambda each: isinstance(each, ast.For), self.nth, "loop")
        node.iter = ast.Subscript(node.iter, ast.Slice(step=_literal(-1)), ast.Load())


@dataclass(frozen=True)
class Exchange(Mutation):
    """The nth statement of one line changes places with the one after it."""

    nth: int

    def apply(self, tree):
        node = _nth(tree, _is_simple, self.nth, "statement")
        for parent in ast.walk(tree):
            for _, block in ast.iter_fields(parent):
                if isinstance(block, list) and any(each is node for each in block):
                    at = next(k for k, each in enumerate(block) if each is node)
                    block[at : at + 2] = block[at : at + 2][::-1]
                    return


@dataclass(frozen=True)
class Separate(Mutation):
    """The nth `elif` is an `if` of its own."""

    nth: int

    def apply(self, tree):
        def fits(node):
            return isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)

        node = _nth(tree, fits, self.nth, "elif")
        for parent in ast.walk(tree):
            for _, block in ast.iter_fields(parent):
                if isinstance(block, list) and any(each is node for each in block):
                    at = next(k for k, each in enumerate(block) if each is node)
                    block[at + 1 : at + 1], node.orelse = node.orelse, []
                    return


@dataclass(frozen=True)
class Rewrite(Mutation):
    """The nth expression or statement whose text is `old` becomes `new`: where no other operator says it."""

    old: str
    new: str
    nth: int = 0

    def apply(self, tree):
        (before,), (after,) = ast.parse(self.old).body, ast.parse(self.new).body
        of = ast.expr if isinstance(before, ast.Expr) else ast.stmt
        old = ast.unparse(before)
        found = [node for node in _body(tree) if isinstance(node, of)]
        same = [node for node in found if ast.unparse(node) == old]
        if self.nth >= len(same):
            near = difflib.get_close_matches(old, {ast.unparse(node) for node in found}, 3)
            raise AddressError(f"`{old}` number {self.nth}: there are {len(same)}; near it: {near}")
        _put(tree, same[self.nth], after.value if of is ast.expr else after)


def mutated(source: str, mutation: Mutation) -> str:
    """The source of a function with one change. Raises AddressError, also where nothing is changed by it."""
    before = ast.parse(textwrap.dedent(source))
    tree = copy.deepcopy(before)
    mutation.apply(tree)
    tree = ast.fix_missing_locations(tree)
    if ast.unparse(tree) == ast.unparse(before):
        raise AddressError(f"{mutation}: changes nothing")
    return ast.unparse(tree)


@dataclass(frozen=True)
class Subject:
    """A kernel, the comparison it is put through, what builds the cases, and single changes that must be noticed."""

    module: ModuleType
    name: str
    comparison: Callable[[compare.Kernel, Any], compare.Pair]
    build: Callable[[cases.Source], Any]
    mutations: tuple[Mutation, ...]

    @property
    def source(self) -> str:
        return inspect.getsource(getattr(self.module, self.name).py_func)

    def compiled_by_python(self, source: str) -> compare.Kernel:
        """`source` as plain Python; what it calls of its own module is plain Python too."""
        namespace: dict[str, Any] = {**vars(self.module), "kernel": lambda function: function}
        for name, value in vars(self.module).items():
            if isinstance(value, jit.Kernel) and value.py_func.__module__ == self.module.__name__:
                namespace[name] = FunctionType(value.py_func.__code__, namespace, name)
        exec(source, namespace)
        return namespace[self.name]

    def pairs(self, kernel: compare.Kernel) -> Iterator[compare.Pair]:
        for case in _seeded_cases(self.build):
            yield self.comparison(kernel, case)

    def check_as_it_stands(self) -> None:
        """Raise AssertionError where the source, unchanged, differs from its twin."""
        for got, expected in self.pairs(self.compiled_by_python(self.source)):
            assert got == expected

    def check_told(self, mutation: Mutation) -> None:
        """Raise AssertionError where the comparison does not tell the mutant from the twin; AddressError."""
        mutant = self.compiled_by_python(mutated(self.source, mutation))
        try:
            same = all(got == expected for got, expected in self.pairs(mutant))
        except (IndexError, ValueError):
            same = False
        assert not same, f"{self.name}: nothing tells {mutation}"


@cache
def _seeded_cases(build: Callable[[cases.Source], Any]) -> list[Any]:
    return [build(cases.Seeded(np.random.default_rng(seed))) for seed in range(CASES)]


def mutations_of(subjects):
    """One pytest parameter for each single change of each subject."""
    return [
        pytest.param(subject, mutation, id=f"{subject.name}-{k}")
        for subject in subjects
        for k, mutation in enumerate(subject.mutations)
    ]


def kernels_of(module):
    """Names of the compiled functions of a module."""
    return {
        name
        for name, value in vars(module).items()
        if isinstance(value, jit.Kernel) and value.py_func.__module__ == module.__name__
    }
