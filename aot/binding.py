"""Finding a user's function by name and matching argument specs to its parameters."""
from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aot.errors import AotError
from aot.source import is_internal_path

# ---- finding the function ------------------------------------------------------------------------------------------

def find(target: str) -> Callable:
    """`package.module:function` or `path/to/file.py:function` -> the function.

    Raises AotError when there is no such module, attribute or callable; whatever importing the module raises passes
    through.
    """
    module_name, colon, name = target.rpartition(":")
    if not colon or not module_name or not name:
        raise AotError(f"{target!r} names no function", hint="write MODULE:FUNCTION, like model.py:predict")
    module = _import_file(module_name) if module_name.endswith(".py") else _import_dotted(module_name)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise AotError(f"module {module_name!r} has no {name!r}", hint=_similar(name, found))
        found = getattr(found, part)
    if not callable(found):
        raise AotError(f"{target} is not a function but a value of type {type(found).__name__}")
    return found


def _similar(name: str, module: Any) -> str:
    functions = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
    close = difflib.get_close_matches(name, functions, 1)
    own = [k for k in functions if getattr(getattr(module, k), "__module__", None) == getattr(module, "__name__", "")]
    return f"did you mean {close[0]!r}?" if close else f"it defines: {', '.join(own[:12]) or 'no functions'}"


def _import_file(path: str) -> Any:
    if not os.path.isfile(path):
        raise AotError(f"{path}: no such file")
    path = os.path.abspath(path)
    folder, file = os.path.split(path)
    import_from(folder)         # as if it had been run, so that its neighbours can be imported
    name = _module_name(file[:-3])
    file_spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, path))
    assert file_spec is not None and file_spec.loader is not None
    module = importlib.util.module_from_spec(file_spec)
    sys.modules[name] = module
    with same_folder():
        file_spec.loader.exec_module(module)
    return module


def _module_name(name: str) -> str:
    """The name of the module that a file becomes: not one of a library's that is in use, such as numpy or random."""
    while (used := sys.modules.get(name)) is not None and not _is_users(os.path.dirname(getattr(used, "__file__", None) or "")):
        name += "_"
    return name


@contextlib.contextmanager
def same_folder() -> Iterator[None]:
    """What a module does to the current folder while it is imported does not move the files that a command names."""
    before = os.getcwd()
    try:
        yield
    finally:
        os.chdir(before)


def _import_dotted(name: str) -> Any:
    import_from(os.getcwd())
    try:
        with same_folder():
            return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is None or not (name + ".").startswith(e.name + "."):
            raise  # the module exists, one that it imports does not
        raise AotError(f"no module named {e.name!r}", hint="give a dotted name that Python can import from here, or "
                       "the path of a .py file") from None


# Python takes byte code for current when size and time of the source are as before, and its times are whole seconds: of a
# file that changes twice in one, the first version would be built.  What is built from is read from the source, therefore.

class _SourceLoader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        try:
            return self.source_to_code(self.get_data(path), path)
        except (SyntaxError, ValueError) as e:
            if isinstance(e, SyntaxError) and e.filename:
                raise
            raise SyntaxError(str(e), (path, 1, None, None)) from None      # Python does not say where: null bytes


_folders: set[str] = set()


def import_from(folder: str) -> None:
    """Make the modules of a user's folder importable, before all others."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if not _folders:
        sys.path_hooks.insert(0, _source_finder)
    if folder not in _folders:
        _folders.add(folder)
        for path in [p for p in sys.path_importer_cache if _is_users(p)]:
            del sys.path_importer_cache[path]


def _is_users(path: str) -> bool:
    """Whether a folder is one of the user's, or in one, and no installed package."""
    installed = "site-packages" in path or "dist-packages" in path or is_internal_path(path + os.sep)
    return not installed and any(path == f or path.startswith(f + os.sep) for f in _folders)


def _source_finder(path: str) -> importlib.machinery.FileFinder:
    if not _is_users(path) or not os.path.isdir(path):
        raise ImportError
    machinery = importlib.machinery
    return machinery.FileFinder(path, (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
                                (_SourceLoader, machinery.SOURCE_SUFFIXES),
                                (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES))


# ---- binding arguments ---------------------------------------------------------------------------------------------

@dataclass
class Argument:
    """One argument of the traced function: its name in the user's signature and a tree of specs or values."""
    name: str
    tree: Any
    keyword: bool = False   # must be passed by name
    weights: bool = False   # its values are stored in the artifact instead of being passed
    extra: bool = False     # an element of *args


def bind(fun: Callable, args: Sequence[Any], named: Mapping[str, Any], weights: Mapping[str, Any],
         static: Mapping[str, Any]) -> list[Argument]:
    """Match values to the parameters of `fun`, in the order of its signature.

    `args` fill the positional parameters that are neither static nor weights.  Raises AotError for too many, unknown,
    repeated or missing ones.
    """
    parameters = _parameters(fun)
    given, values = list(args), {**named, **weights}
    _check_names(fun, parameters, values, static)
    bound = []
    for p in parameters:
        by_position = p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        if p.name in static:
            continue
        if p.kind is p.VAR_POSITIONAL:
            bound += [Argument(f"{p.name}[{i}]", v, extra=True) for i, v in enumerate(given)]
            given = []
        elif p.name in values:
            bound.append(Argument(p.name, values[p.name], not by_position, p.name in weights))
        elif by_position and given:
            bound.append(Argument(p.name, given.pop(0)))
        elif p.default is p.empty and p.kind is not p.VAR_KEYWORD:
            raise AotError(f"{function_name(fun)}: nothing given for parameter {p.name!r}", hint=_takes(fun))
    if given:
        raise AotError(f"{function_name(fun)}: {len(given)} arguments too many", hint=_takes(fun))
    known = {p.name for p in parameters}
    return bound + [Argument(k, v, True, k in weights) for k, v in sorted(values.items()) if k not in known]


def _parameters(fun: Callable) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):  # some builtins tell nothing
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]


def _check_names(fun: Callable, parameters: list, values: Mapping, static: Mapping) -> None:
    names = {p.name for p in parameters if p.kind is not p.VAR_POSITIONAL}
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for k in (*values, *static):
        if k not in names and not anything:
            raise AotError(f"{function_name(fun)}: there is no parameter {k!r}", hint=_takes(fun))
        if k in values and k in static:
            raise AotError(f"{function_name(fun)}: parameter {k!r} is given twice")


def first_parameter(fun: Callable) -> str:
    """Name of the first parameter.  Raises AotError when there is none."""
    for p in _parameters(fun):
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            return p.name
    raise AotError(f"{function_name(fun)}: has no parameter to bind weights to", hint=_takes(fun))


def function_name(fun: Callable) -> str:
    return getattr(fun, "__name__", type(fun).__name__)


def _takes(fun: Callable) -> str:
    return f"its signature is {function_name(fun)}({', '.join(map(str, _parameters(fun)))})"


def as_positional(fun: Callable, bound: list[Argument], static: Mapping[str, Any]) -> Callable:
    """`fun` as a function of the bound arguments by position, the static ones filled in."""
    parameters = _parameters(fun)

    def call(*values):
        named = {a.name: v for a, v in zip(bound, values) if not a.extra} | dict(static)
        positional, keywords, gap = [], {}, False
        for p in parameters:
            gap = gap or p.name not in named
            if p.name not in named:
                continue
            by_position = p.kind is p.POSITIONAL_ONLY or p.kind is p.POSITIONAL_OR_KEYWORD and not gap
            if by_position:
                positional.append(named.pop(p.name))
            else:
                keywords[p.name] = named.pop(p.name)
        extra = [v for a, v in zip(bound, values) if a.extra]
        return fun(*positional, *extra, **keywords, **named)

    call.__name__ = call.__qualname__ = function_name(fun)
    return call


# ---- transforms ----------------------------------------------------------------------------------------------------

def parse_argnums(text: str, bound: list[Argument]) -> int | tuple[int, ...]:
    """`0`, `params` or `params,x` -> positions among the traced arguments."""
    names = [a.name for a in bound]
    found = []
    for part in filter(None, (p.strip() for p in text.strip("()[] ").split(","))):
        if part.isdigit() and int(part) < len(bound):
            found.append(int(part))
        elif part in names:
            found.append(names.index(part))
        else:
            raise AotError(f"cannot differentiate with respect to {part!r}",
                           hint=f"the arguments are: {', '.join(f'{i} {n}' for i, n in enumerate(names))}")
    if not found:
        raise AotError(f"{text!r} names no argument to differentiate with respect to", hint="for example 0, or params")
    return found[0] if len(found) == 1 and "," not in text else tuple(found)


def parse_in_axes(text: str, bound: list[Argument]) -> Any:
    """`0` or `None,0` -> in_axes for every traced argument; stored weights may be left out, they are not mapped."""
    try:
        axes = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise AotError(f"cannot read the axes {text!r}", hint="write 0, or one per argument: None,0") from None
    passed = [a for a in bound if not a.weights]
    if not isinstance(axes, (tuple, list)):
        return tuple(None if a.weights else axes for a in bound)
    if len(axes) not in (len(passed), len(bound)):
        raise AotError(f"{len(axes)} axes for {len(passed)} arguments ({', '.join(a.name for a in passed)})",
                       hint="give one number or None per argument")
    rest = iter(axes)
    return tuple(axes) if len(axes) == len(bound) else tuple(None if a.weights else next(rest) for a in bound)
