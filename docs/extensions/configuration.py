"""The page of every configuration key, written from the JSON Schema when the documents are built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scalable_kpca.workflow.config import Config

__all__ = ["page", "setup"]

TITLE = "(reference-configuration)=\n# Configuration keys\n"
INTRODUCTION = """
What a configuration of `skpca run` may say, in YAML or TOML; `skpca schema` prints the same as JSON Schema, which
editors read from `pipelines/schema.json`. A key that is not here is an error. `SKPCA_KERNEL__GAMMA=0.1` in the
environment overrides `kernel.gamma` of the file, and `--set kernel.gamma=0.1` both.
"""


def setup(app: Any) -> dict[str, Any]:
    """Write the page before the documents are read."""
    app.connect("builder-inited", lambda app: _write(Path(app.srcdir) / "reference" / "configuration.md"))
    return {"version": "1", "parallel_read_safe": True}


def page() -> str:
    """Markdown: a table for the top, and one for each section."""
    schema = Config.model_json_schema()
    definitions = schema["$defs"]
    parts = [TITLE, INTRODUCTION, _table(schema, definitions)]
    for key, field in schema["properties"].items():
        name = _section(field)
        if name:
            parts += _chapter(key, definitions[name], definitions, level=2)
    return "\n".join(parts)


def _write(path: Path) -> None:
    text = page()
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _chapter(key: str, definition: dict[str, Any], definitions: dict[str, Any], level: int) -> list[str]:
    parts = [f"\n{'#' * level} `{key}`\n", definition.get("description", "") + "\n", _table(definition, definitions)]
    for inner, field in definition["properties"].items():
        name = _section(field)
        # limits of drift are all alike and named in its table
        if name and name != "Limits":
            parts += _chapter(f"{key}.{inner}", definitions[name], definitions, level + 1)
    return parts


def _section(field: dict[str, Any]) -> str | None:
    """Name of the definition that a key is a section of."""
    for choice in (field, *field.get("anyOf", ())):
        if "$ref" in choice:
            return str(choice["$ref"].rpartition("/")[2])
    return None


def _table(definition: dict[str, Any], definitions: dict[str, Any]) -> str:
    required = definition.get("required", ())
    lines = ["| key | value | default | |", "| --- | --- | --- | --- |"]
    for key, field in definition["properties"].items():
        default = "required" if key in required else _default(field)
        lines.append(f"| `{key}` | {_values(field, definitions)} | {default} | {_cell(field.get('description', ''))} |")
    return "\n".join(lines) + "\n"


def _default(field: dict[str, Any]) -> str:
    if "default" not in field or isinstance(field["default"], dict):
        return ""
    return f"`{json.dumps(field['default'], ensure_ascii=False)}`"


def _values(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "anyOf" in field:
        return _cell(" or ".join(dict.fromkeys(_values(choice, definitions) for choice in field["anyOf"])))
    if "$ref" in field:
        name = str(field["$ref"].rpartition("/")[2])
        return "`warn` and `fail`, each a number or null" if name == "Limits" else "section"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    kind = str(field.get("type", "anything"))
    if kind == "array":
        return f"list of {_values(field.get('items', {}), definitions)}"
    return {"string": "text", "object": "mapping"}.get(kind, kind) + _limits(field)


def _limits(field: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return "".join(f" {sign} {field[name]:g}" for name, sign in signs.items() if name in field)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("*", "\\*").replace("<", "&lt;")
