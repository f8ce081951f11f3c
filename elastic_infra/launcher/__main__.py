"""``python -m elastic_infra.launcher`` and the console script ``elasticrun``."""

from .signals import Signals


def main() -> int:
    """Handle signals first, then launch."""
    signals = Signals.install()
    import os
    import sys

    from . import launch

    return launch.main(sys.argv[1:], os.environ, signals)


if __name__ == "__main__":
    raise SystemExit(main())
