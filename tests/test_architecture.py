"""The shape of the package: data flows one way, heavy libraries have one home, the surface stays small."""

import ast
import graphlib
import importlib
import inspect
from pathlib import Path

import pytest

import scalable_kpca

ROOT = Path(scalable_kpca.__file__).parent
PACKAGE = "scalable_kpca"

# a module imports from its own unit and from units before it, never from later ones
ORDER = [
    "errors",
    "faults",
    "address_space",
    "disk",
    "documents",
    "records",
    "machine",
    "objects",
    "source",
    "kernels",
    "tiling",
    "engine",
    "staging",
    "streaming",
    "landmarks",
    "scale",
    "nystroem",
    "gram",
    "centering",
    "journal",
    "operator",
    "measuring",
    "solvers",
    "definiteness",
    "planning",
    "probe",
    "completeness",
    "certificate",
    "solving",
    "model",
    "transform",
    "novelty",
    "health",
    "preimage",
    "exact",
    "approximate",
    "fitting",
    "quality",
    "report",
    "markup",
    "plots",
    "estimators",
    "workflow",
    "stopping",
    "console",
    "cli",
    "commands",
]

HOMES = {
    "zarr": {"source", "gram", "model"},
    "h5py": {"source"},
    "obstore": {"objects"},
    "distributed": {"engine"},
    "dask.distributed": {"engine"},
    "dask.local": {"engine"},
    "dask.threaded": {"engine"},
    "dask.multiprocessing": {"engine"},
    "click": {"cli", "console"},
    "pydantic": {"workflow"},
    "matplotlib": {"plots"},
    "prometheus_client": {"engine", "workflow"},
    "openlineage": {"workflow"},
    "bokeh": {"engine"},
}

FILES = sorted(ROOT.rglob("*.py"))


def module_of(file):
    parts = (PACKAGE, *file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit_of(module):
    """Which of ORDER a dotted name of this package belongs to; None for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def tree_of(file):
    return ast.parse(file.read_text(), str(file))


def imports_of(file):
    """Every module that a file imports, also inside functions: (line, dotted name)."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            yield node.lineno, node.module
            # `from a import b` may import the module a.b
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def called_names(file):
    calls = [node.func for node in ast.walk(tree_of(file)) if isinstance(node, ast.Call)]
    return {function.id for function in calls if isinstance(function, ast.Name)}


def belongs(name, library):
    return name == library or name.startswith(library + ".")


every_file = pytest.mark.parametrize("file", FILES, ids=module_of)


def test_the_package_has_the_modules_that_are_ordered():
    assert len(FILES) > 15
    assert [unit for unit in map(unit_of, map(module_of, FILES)) if unit is not None and unit not in ORDER] == []


@every_file
def test_imports_only_point_backwards(file):
    unit = unit_of(module_of(file))
    if unit is None:
        return  # the package itself only gathers the public names
    forward = []
    for line, name in imports_of(file):
        if belongs(name, PACKAGE):
            other = unit_of(name)
            if other is None or ORDER.index(other) > ORDER.index(unit):
                forward.append(f"line {line}: {name}")
    assert forward == [], f"{module_of(file)} may import from {', '.join(ORDER[: ORDER.index(unit) + 1])} only"


def test_modules_import_each_other_without_a_cycle():
    modules = {module_of(file) for file in FILES}
    graph = {
        module_of(file): {name for _, name in imports_of(file) if name in modules and name != module_of(file)}
        for file in FILES
    }
    tuple(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError with the names


@every_file
def test_heavy_libraries_have_one_home(file):
    unit = unit_of(module_of(file))
    strays = [
        f"line {line}: {name} belongs in {', '.join(sorted(homes))}"
        for line, name in imports_of(file)
        for library, homes in HOMES.items()
        if belongs(name, library) and unit not in homes
    ]
    assert strays == []


@every_file
def test_only_the_engine_makes_dask_compute(file):
    if unit_of(module_of(file)) == "engine":
        return
    calls = [
        f"line {node.lineno}: {ast.unparse(node.func)}"
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"compute", "persist", "rechunk_to_zarr", "to_zarr"}
    ]
    assert calls == []


@every_file
def test_nothing_is_pickled_or_evaluated(file):
    banned = {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve"}
    assert [f"line {line}: {name}" for line, name in imports_of(file) if name.split(".")[0] in banned] == []
    assert {"eval", "exec", "compile", "__import__"}.isdisjoint(called_names(file))


@every_file
def test_nothing_prints(file):
    assert "print" not in called_names(file)


@every_file
def test_every_module_has_a_docstring_and_names_what_it_offers(file):
    assert (ast.get_docstring(tree_of(file)) or "").strip(), f"{module_of(file)} has no docstring"
    module = importlib.import_module(module_of(file))
    offered = module.__all__
    assert len(set(offered)) == len(offered)
    assert [name for name in offered if not hasattr(module, name)] == []


@every_file
def test_every_public_function_is_offered(file):
    module = importlib.import_module(module_of(file))
    own = {
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    assert own <= set(module.__all__)


def test_public_surface_is_at_most_twelve_names():
    names = scalable_kpca.__all__
    assert 1 <= len(names) <= 12
    assert {"KernelPCA", "load_model", "plan"} <= set(names)
    defined = {
        name.id
        for node in tree_of(ROOT / "__init__.py").body
        if isinstance(node, ast.Assign)
        for name in node.targets
        if isinstance(name, ast.Name)
    }
    assert {name for name in defined if not name.startswith("_")} <= set(names)


def test_every_error_is_one_of_ours_and_one_of_pythons():
    from scalable_kpca import errors

    classes = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    found = [error for error in classes if not issubclass(error, Warning)]
    assert len(found) > 10
    for error in found:
        assert issubclass(error, errors.KernelPCAError)
        if error is not errors.KernelPCAError:
            builtin = [base for base in error.__mro__ if base.__module__ == "builtins" and base is not Exception]
            assert any(issubclass(base, Exception) for base in builtin), f"{error} is no built-in error"
            assert error.exit_code in {65, 69, 74, 75, 78}
