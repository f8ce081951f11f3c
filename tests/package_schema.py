"""The package's schema as users get it: made in a process of its own."""

from __future__ import annotations

import sys

from tools.run import output

_PROGRAM = "from elastic_infra import plugin; print(plugin.host().schema)"


def package_schema() -> str:
    """The schema's JSON.

    Pulumi's analyzer leaves a description out where reading the source fails, and says nothing
    (`Analyzer.get_docstring`), so a process that has run other tests need not make what users get.
    """
    return output([sys.executable, "-c", _PROGRAM])
