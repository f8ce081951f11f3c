"""The launcher: a drop-in for torchrun that keeps training while nodes come and go.

Relative imports only, so that the folder can be zipped and mounted into any torch image; the standard library
everywhere; only processes that run the user's code import torch.
"""
