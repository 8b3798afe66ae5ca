"""The only epsilons. Loads and yields are fractions of order 1, in 64-bit floats."""

CAPACITY = 1e-9
"""A node's load may pass its capacity by this much: the rounding of some hundred additions."""

PLACEMENT = 2e-9
"""What evaluating a placement forgives: it adds in another order than the packer did."""

YIELD_SEARCH_WIDTH = 1e-3
"""The yield search of [Stillwell2010] section 4.2.5 stops at this width."""

CERTIFICATE = 1e-6
"""What the independent checker forgives; wider than CAPACITY, narrower than any effect that matters."""

SAME_S = 1e-6
"""Times in seconds that differ by less are the same: what is left of a job is known up to rounding."""
