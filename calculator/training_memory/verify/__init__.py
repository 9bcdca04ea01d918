"""The check on a GPU: train a model for a few steps and hold the memory against the prediction.

Only ``network``, ``training`` and ``measuring`` import PyTorch, and only when a run is to be
measured. The page "On a real GPU" says what is compared and what is not.
"""
