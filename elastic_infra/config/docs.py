"""The docstrings of a part's fields, read from the source on demand.

pydantic can read them at import, which would parse every class's source at each start of the CLI and of `pulumi up`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Mapping


@functools.cache
def _classes(module: str) -> Mapping[str, ast.ClassDef]:
    """A module's classes by name, from one parse: ``inspect.getsource`` of a class parses the whole file each time."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def field_docs(part: type) -> Mapping[str, str]:
    """Field to docstring, in the order of the fields, of a class at the top of its module."""
    body = _classes(part.__module__)[part.__name__].body
    return {
        field.target.id: inspect.cleandoc(doc.value.value)
        for field, doc in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str)
    }
