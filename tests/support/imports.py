"""What a Python file imports, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

OUR_PACKAGES = ("airflow_ckpt", "ckpt_stream")
#: They import or run code that the source does not name.
DYNAMIC_MODULES = ("builtins", "imp", "importlib", "pkgutil", "pydoc", "runpy", "zipimport")
DYNAMIC_NAMES = ("__import__", "import_module", "import_string", "exec_module", "load_module")
DYNAMIC_BUILTINS = ("__builtins__", "compile", "eval", "exec")
#: Of those modules, what only finds out where something is.
HARMLESS = ("importlib.metadata", "importlib.resources", "importlib.util.find_spec")
#: What may be imported as it is; each use of it is then looked at.
PLAIN = ("importlib.metadata", "importlib.resources", "importlib.util")


def module_of(file: Path, package: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(file: Path, module: str = "") -> Iterator[tuple[int, str]]:
    """Each module that a file imports, with its line; `importlib.import_module("x")` and the use of `package.module` count too.

    A relative import is resolved if the importing module is given.
    """
    for node in ast.walk(ast.parse(file.read_text(), filename=str(file))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.level == 0 or module):
            # `from package import name`: the name may be a module of it.
            source = _absolute(node, module, is_package=file.name == "__init__.py")
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
        else:
            name = _imported_by_call(node) or _used_of_ours(node)
            yield from [(node.lineno, name)] if name and isinstance(node, ast.expr) else []


def imports_for_type_checkers(file: Path) -> set[str]:
    """The names that a file imports if TYPE_CHECKING is true."""
    blocks = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.If))
    return {
        f"{node.module}.{alias.name}"
        for block in blocks
        if isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def dynamic_imports(file: Path) -> Iterator[tuple[int, str]]:
    """Each place where a file takes the means to import or to run what its source does not name, with its line."""
    for node in ast.walk(ast.parse(file.read_text(), filename=str(file))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.asname or alias.name not in PLAIN]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            name = _dotted(node)
            found = [] if name in PLAIN else [name]
            found += [f"importlib.{node.attr}"] if node.attr in DYNAMIC_NAMES else []
        elif isinstance(node, ast.Name):
            found = [f"builtins.{node.id}"] if node.id in (*DYNAMIC_NAMES, *DYNAMIC_BUILTINS) else []
        else:
            continue
        yield from ((node.lineno, name) for name in found if _is_dynamic(name))


def _is_dynamic(name: str) -> bool:
    """`sys.modules` has every module, whichever one imported it."""
    if name == "sys.modules" or name.startswith("sys.modules.") or name.rpartition(".")[2] in DYNAMIC_NAMES:
        return True
    return name.split(".")[0] in DYNAMIC_MODULES and not f"{name}.".startswith(tuple(f"{h}." for h in HARMLESS))


def _dotted(node: ast.expr) -> str:
    """The text of `a.b.c`; nothing of another expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (front := _dotted(node.value)):
        return f"{front}.{node.attr}"
    return ""


def _absolute(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def _used_of_ours(node: ast.AST) -> str | None:
    """After `import airflow_ckpt`, each module that is loaded can be used without another import."""
    name = _dotted(node) if isinstance(node, ast.Attribute) else ""
    return name if name.split(".")[0] in OUR_PACKAGES else None


def _imported_by_call(call: ast.AST) -> str | None:
    if not isinstance(call, ast.Call):
        return None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "name")]
    if name in ("import_module", "__import__") and given and isinstance(given[0], ast.Constant):
        return str(given[0].value)
    return None
