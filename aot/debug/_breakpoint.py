"""`debug.breakpoint`: a prompt over the values of a running program."""
from __future__ import annotations

import inspect
import sys
from typing import Any, TextIO

from aot.ops.callbacks import callback
from aot.ops.misc import stop_gradient
from aot.source import is_internal
from aot.trace import is_valid_type, typeof
from aot.tree_util import tree_flatten

HELP = """p EXPR    print an expression of the local variables      (any other text is evaluated too)
l         list the source around the line                 w    where: the stack of the traced function
u, d      go up or down the stack                         a    all local variables
c         continue                                        q    quit: raise KeyboardInterrupt"""


class Frame:
    """One frame of the user's stack, its variables split into traced values and others."""

    def __init__(self, frame):
        self.file, self.line, self.function = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        self.globals, self.locals = frame.f_globals, dict(frame.f_locals)


def user_frames() -> list[Frame]:
    """The user's frames, innermost first."""
    out, frame = [], inspect.currentframe()
    while frame is not None:
        if not is_internal(frame.f_code):
            out.append(Frame(frame))
        frame = frame.f_back
    return out


def breakpoint(*, backend: str | None = None, filter_frames: bool = True, num_frames: int | None = None,
               ordered: bool = False, token: Any = None, **kwargs: Any) -> Any:
    """Stop the running program here and prompt: variables hold the values of this run.

    Where standard input is at its end, says so and continues.  num_frames: how many of the callers to show.  token: a tree
    of arrays that is returned, and the program stops when they are computed.  kwargs: `stdin` and `stdout`, the streams to
    prompt on.  There is one backend, "cli", and filter_frames has no effect: internal frames are never shown.
    Raises ValueError for another backend and where both ordered and token are given."""
    if backend not in (None, "cli"):
        raise ValueError(f"debug.breakpoint has no backend {backend!r}. hint: leave it out, or use 'cli'")
    if token is not None and ordered:
        raise ValueError("debug.breakpoint: ordered and token exclude each other. hint: give one")
    return _stop(user_frames()[:num_frames], ordered, token, **kwargs)


def _stop(frames: list[Frame], ordered: bool, token: Any, stdin: TextIO | None = None, stdout: TextIO | None = None) -> Any:
    leaves, tree = tree_flatten([f.locals for f in frames], is_leaf=lambda x: not isinstance(x, (dict, list)))
    arrays = [is_valid_type(x) and hasattr(x, "aval") for x in leaves]

    given, token_tree = tree_flatten(token)

    def stop(*values):
        it = iter(values[len(given):])
        filled = tree.unflatten([next(it) if a else x for x, a in zip(leaves, arrays)])
        Prompt(frames, filled, stdin or sys.stdin, stdout or sys.stdout).run()
        return list(values[:len(given)])
    values = [*given, *[x for x, a in zip(leaves, arrays) if a]]
    if token is None:
        callback(stop, values, [], "debug", ordered)
        return None
    values = [stop_gradient(x) for x in values]
    return token_tree.unflatten(callback(stop, values, [typeof(x) for x in given], "pure", False))


class Prompt:
    def __init__(self, frames: list[Frame], variables: list[dict], stdin: TextIO, stdout: TextIO):
        self.frames, self.variables, self.at = frames, variables, 0
        self.stdin, self.stdout = stdin, stdout

    def say(self, text: str) -> None:
        self.stdout.write(text + "\n")
        self.stdout.flush()

    def run(self) -> None:
        frame = self.frames[0]
        self.say(f"Entering breakpoint at {frame.file}:{frame.line} ({frame.function}); h for help")
        while True:
            self.stdout.write("(debug) ")
            self.stdout.flush()
            line = self.stdin.readline()
            if not line:
                self.say("end of input: continuing")
                return
            if self.command(line.strip()):
                return

    def command(self, text: str) -> bool:
        """Run one command; True to continue the program."""
        word, _, rest = text.partition(" ")
        if word in ("c", "continue"):
            return True
        if word in ("q", "quit", "exit"):
            raise KeyboardInterrupt("quit from the breakpoint")
        if word in ("u", "up", "d", "down"):
            step = 1 if word.startswith("u") else -1
            self.at = min(max(self.at + step, 0), len(self.frames) - 1)
            self.where_am_i()
        elif word in ("w", "bt", "where"):
            for i, f in enumerate(self.frames):
                self.say(f"{'>' if i == self.at else ' '} {f.file}:{f.line} ({f.function})")
        elif word in ("l", "list"):
            self.list_source()
        elif word in ("a", "locals"):
            for k, v in self.variables[self.at].items():
                self.say(f"{k} = {v!r}")
        elif word in ("h", "help", "?"):
            self.say(HELP)
        elif text:
            self.evaluate(rest if word in ("p", "pp", "print") else text)
        return False

    def where_am_i(self) -> None:
        f = self.frames[self.at]
        self.say(f"{f.file}:{f.line} ({f.function})")

    def list_source(self, around: int = 5) -> None:
        import linecache
        f = self.frames[self.at]
        for n in range(max(f.line - around, 1), f.line + around + 1):
            text = linecache.getline(f.file, n).rstrip()
            if text or n == f.line:
                self.say(f"{'->' if n == f.line else '  '} {n:4} {text}")

    def evaluate(self, expression: str) -> Any:
        try:
            self.say(repr(eval(expression, self.frames[self.at].globals, self.variables[self.at])))
        except Exception as err:
            self.say(f"{type(err).__name__}: {err}")
