"""The documentation of an API as one HTML page that loads nothing from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1f2328; background: #fff; }
h2 { margin-top: 2.5rem; border-top: 1px solid #d0d7de; padding-top: 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: #f6f8fa; }
pre { padding: .75rem; overflow-x: auto; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .25rem 1rem .25rem 0;
       vertical-align: top; }
@media (prefers-color-scheme: dark) { body { color: #e6edf3; background: #0d1117; }
       code, pre { background: #161b22; } h2 { border-color: #30363d; } }
"""


def page_of(document: dict[str, Any]) -> str:
    """An OpenAPI document as HTML."""
    title = f"{escape(document['info']['title'])} {escape(document['info']['version'])}"
    operations = [
        _operation(f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f"<details id='{escape(name)}'><summary><code>{escape(name)}</code> "
        f"{escape(schema.get('description', ''))}</summary>{_pre(schema)}</details>"
        for name, schema in document["components"]["schemas"].items()
    ]
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title>"
        "<meta name='viewport' content='width=device-width'>"
        f"<style>{STYLE}</style><h1>{title}</h1><p>{escape(document['info']['description'])}</p>"
        "<p>The same for programs: <a href='openapi.json'>openapi.json</a>.</p>"
        f"{''.join(operations)}<h2>Schemas</h2>{''.join(schemas)}</html>"
    )


def _operation(title: str, operation: dict[str, Any]) -> str:
    parts = [f"<h2><code>{escape(title)}</code></h2>"]
    parts.append(f"<p>{escape(operation.get('description') or operation['summary'])}</p>")
    parameters = [
        (f"<code>{escape(each['name'])}</code>", escape(each.get("description", "")))
        for each in operation.get("parameters", ())
    ]
    if parameters:
        parts.append(f"<h3>Query</h3>{_table(parameters)}")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content["schema"]
        parts.append(f"<h3>Body: <code>{escape(kind)}</code></h3>")
        parts.append(f"<p>{escape(schema.get('description', ''))}</p>")
        parts += [_pre(example) for example in schema.get("examples", ())]
        if "properties" in schema:
            parts.append(f"<details><summary>Schema</summary>{_pre(schema)}</details>")
    answers = [
        (f"<code>{status}</code> {_answer_schema(answer)}", escape(answer["description"]))
        for status, answer in operation["responses"].items()
    ]
    return "".join([*parts, f"<h3>Answers</h3>{_table(answers)}"])


def _answer_schema(answer: dict[str, Any]) -> str:
    content = answer.get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return f"<a href='#{escape(name)}'>{escape(name)}</a>" if name else ""


def _table(rows: list[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><td>{left}<td>{right}' for left, right in rows)}</table>"


def _pre(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
