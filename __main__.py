"""What Pulumi's Python host runs for PulumiPlugin.yaml: `python FOLDER`, in the environment of requirements.txt."""

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder: the installed package runs, and leaves no bytecode here
    from elastic_infra.plugin import serve

    serve()
