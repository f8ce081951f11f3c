"""From a command line to a plan: torchrun's options, checked and resolved, without starting a process."""
