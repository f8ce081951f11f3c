"""Serves the policy pack: `pulumi preview --policy-pack` starts this folder as a program."""

from elastic_infra.policy.pack import serve

serve()
