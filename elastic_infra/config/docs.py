"""What a part's fields say about themselves: their docstrings, read from the source when a reader asks for them.

Not read at import, as pydantic can: that would parse every class's source at each start of the CLI and of `pulumi up`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Mapping


def field_docs(part: type) -> Mapping[str, str]:
    """Field to docstring, in the order of the fields."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(doc.value.value)
        for field, doc in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str)
    }
