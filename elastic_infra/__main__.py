"""`python -m elastic_infra` serves the components; Pulumi's host of packages runs the module by this name."""

from elastic_infra.plugin import serve

if __name__ == "__main__":
    serve()
