"""From what others wrote to a job file: manifests and command lines of torchrun. Pure."""

from elastic_infra.importing.imported import Imported, import_command, import_manifest

__all__ = ["Imported", "import_command", "import_manifest"]
