"""Bodies of operators that are planned whole: their kernels do less than their parts one after another.

A kernel of experts multiplies a token with those that it goes to, and a product of weights of few bits never has them
as floats. So no plan cuts them through these bodies; a gradient goes through them, and they are the float64 reference.
"""
