"""What Pulumi's Python host runs for PulumiPlugin.yaml: `python FOLDER`, in the environment of requirements.txt."""

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder: what pip installed runs
    from elastic_infra.plugin import serve

    serve()
