"""What Pulumi's Python host runs for PulumiPlugin.yaml: `python FOLDER`, in the environment of requirements.txt."""

import shutil
import sys

if __name__ == "__main__":
    folder = sys.path.pop(0)  # what pip installed runs
    shutil.rmtree(f"{folder}/__pycache__", ignore_errors=True)  # Python caches the main module of a folder: this text
    from elastic_infra.plugin import serve

    serve()
