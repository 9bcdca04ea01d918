"""A mirror of PyTorch's autograd that computes no value: only which memory is held, and when.

A layer is written as the operations its implementation performs (:mod:`..blocks`); each operation
allocates its output, saves what its backward pass will read, and says what that pass allocates
(:mod:`.operations`). Running a step over these (:mod:`.tape`) records every allocation and release
in the order in which PyTorch makes them. Sizes are formulas, so one recording serves every run of
the same structure.
"""
