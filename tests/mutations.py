"""Small faults to make in the code: one change of one place each, as `tests.mutate` applies them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

OPERATORS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
}
IN_SQL = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "AND": "OR", "OR": "AND", "ASC": "DESC", "DESC": "ASC"}
_SQL = re.compile(rb"\b(SELECT|UPDATE|DELETE FROM|WHERE|ORDER BY)\b")
_SQL_WORD = re.compile(rb"(?<=\s)(<=|>=|<|>|AND|OR|ASC|DESC)(?=\s)")
TEXTS = {"about", "description", "example", "examples", "help", "metadata", "stacklevel", "summary", "title"}
LOGGERS = {"_log", "log", "logger", "warnings"}


class Mutation(NamedTuple):
    """The bytes from `start` to `end` of a module become `new`; `what` has the change and the function's name."""

    path: str
    line: int
    start: int
    end: int
    new: str
    what: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutations(root: Path, path: str) -> list[Mutation]:
    """All mutations of a module that still compile."""
    source = (root / path).read_bytes()
    found = {(each.start, each.end, each.new): each for each in _Finder(path, source).find()}
    return [each for each in found.values() if _compiles(each.apply(source))]


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutated", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


class _Finder:
    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._scope = "module"

    def find(self) -> Iterator[Mutation]:
        yield from self._in(ast.parse(self._source))

    def _in(self, node: ast.AST) -> Iterator[Mutation]:
        """The mutations of a node and of all code below it."""
        if _is_text(node):
            return
        outer = self._scope
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            self._scope = node.name
        yield from self._of(node)
        if not isinstance(node, ast.JoinedStr):  # nodes inside an f-string have no position
            for name, value in ast.iter_fields(node):
                if name not in ("annotation", "returns", "type_params"):
                    for child in value if isinstance(value, list) else [value]:
                        if isinstance(child, ast.AST):
                            yield from self._in(child)
        self._scope = outer

    def _of(self, node: ast.AST) -> Iterator[Mutation]:
        match node:
            case ast.Compare():
                operands = [node.left, *node.comparators]
                for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
                    yield from self._operator(left, operator, right)
                yield from (self._make(each, '"x"') for each in operands if _is_word(each))
            case ast.BoolOp():
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self._operator(left, node.op, right)
            case ast.BinOp():
                yield from self._operator(node.left, node.op, node.right)
            case ast.UnaryOp(op=ast.Not()):
                yield self._change(node, self._at(node)[0], self._at(node)[0] + 3, "")
            case ast.If() | ast.While() | ast.IfExp():
                if isinstance(node.test, (ast.Name, ast.Attribute, ast.Call, ast.NamedExpr)):
                    yield self._make(node.test, f"not ({self._text(*self._at(node.test))})")
            case ast.Constant(value=bool()):
                yield self._make(node, str(not node.value))
            case ast.Constant(value=int() | float()):
                yield self._make(node, repr(node.value + 1))  # type: ignore[operator]
            case ast.Constant(value="" | b""):
                yield self._make(node, '"x"' if node.value == "" else 'b"x"')
            case ast.Constant(value=str()) | ast.JoinedStr():
                yield from self._sql(node)
            case ast.Subscript():
                yield from (self._make(each, '"x"') for each in [node.slice] if _is_word(each))
            case ast.Return(value=ast.expr() as value):
                if not isinstance(value, ast.Constant):  # the operand is mutated itself
                    yield self._make(value, "None")
            case ast.Call():
                yield from self._call(node)
            case ast.Raise() | ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break():
                yield self._make(node, "pass")
            case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
                yield self._make(node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self._make(node, "pass")

    def _operator(self, left: ast.AST, operator: ast.AST, right: ast.AST) -> Iterator[Mutation]:
        if type(operator) in OPERATORS:
            old, new = OPERATORS[type(operator)]
            begin, end = self._at(left)[1], self._at(right)[0]
            place = self._source.index(old.encode(), begin, end)
            yield self._change(left, place, place + len(old), new)

    def _call(self, node: ast.Call) -> Iterator[Mutation]:
        for keyword in node.keywords:
            if keyword.arg and keyword.arg not in TEXTS:
                start, end = self._at(keyword)
                comma = re.compile(rb"\s*,").match(self._source, end)
                yield self._change(keyword, start, comma.end() if comma else end, "")
        match node.args:
            case [(ast.Name() | ast.Attribute()) as first, (ast.Name() | ast.Attribute()) as second, *_]:
                (a, b), (c, d) = self._at(first), self._at(second)
                yield self._change(first, a, d, self._text(c, d) + self._text(b, c) + self._text(a, b))

    def _sql(self, node: ast.AST) -> Iterator[Mutation]:
        start, end = self._at(node)
        if _SQL.search(self._source, start, end):
            for word in _SQL_WORD.finditer(self._source, start, end):
                yield self._change(node, word.start(), word.end(), IN_SQL[word[0].decode()])

    def _make(self, node: ast.AST, new: str) -> Mutation:
        return self._change(node, *self._at(node), new)

    def _change(self, node: ast.AST, start: int, end: int, new: str) -> Mutation:
        line = self._source.count(b"\n", 0, start) + 1
        begin, stop = max(self._lines[line - 1], start - 30), min(self._lines[line] - 1, end + 30)
        shown = self._text(begin, start) + "⟦" + self._text(start, end) + " → " + new + "⟧" + self._text(end, stop)
        return Mutation(self._path, line, start, end, new, f"{self._scope}: {' '.join(shown.split())}")

    def _at(self, node: Any) -> tuple[int, int]:
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, start: int, end: int) -> str:
        return self._source[start:end].decode(errors="replace")


def _is_word(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""


def _is_text(node: ast.AST) -> bool:
    """Whether a text is for people: a docstring, a log line, a description; or the guard of a script."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGGERS
        case ast.keyword(arg=str()):
            return node.arg in TEXTS
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
    return False
