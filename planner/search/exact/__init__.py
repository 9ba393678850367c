"""Exact minimization by variable elimination: the mathematics, with the function of each formula.

A cost is a sum of tables t_f, each over a few variables S_f, the scope of f::

    E(x) = sum_f t_f(x_f)

**Elimination.** Let v have the factors F(v), those with v in their scope, and the neighbours N(v), all other variables
of these scopes. One table over N(v), the bucket's result, replaces them::

    r(x_N) = min over x_v of sum_{f in F(v)} t_f                           ``buckets.KnownTables.buckets``
    a(x_N) = the first x_v that attains it                                 ``buckets.KnownTables.values``
    min E  = min over the others of (sum of the other factors + r)         ``eliminate.Reduced``

Afterwards N(v) are neighbours of each other (``neighbours.Neighbours.join``). Once all variables are gone, the constant
is min E. Values are read backwards, the last eliminated variable first::

    x_v = a(x_N(v))                                                        ``eliminate.Reduced.complete``

**Order.** A bucket has as many entries as v and N(v) have joint values. Time and memory are the sum and the largest of
these, so that rounds take variables with small buckets, no two of them neighbours::

    bits(v)        = log2 |X_v| + sum_{w in N(v)} log2 |X_w|               ``neighbours.Neighbours.independent``
    largest bucket = 2 ^ max bits                                          ``order.Order.largest_bucket``
    a round takes v if bits(v) <= max(least bits + slack, small bits)      ``neighbours.Neighbours.independent``

Where every bucket is too large, the variable with the largest log2 |X_v| * |N(v)| keeps its value
(``order.find_order_settling``): the other tables lose its axis.

**Constants.** Tables are kept less their minima, so that equal layers have equal tables::

    t_f = c_f + t'_f, min t'_f = 0; sum of c_f is a constant               ``buckets.KnownTables.intern``

**Minimum and place at once.** With b bits for a value's number, one minimum over integers finds both. Of equal sums the
first value wins, and the result does not depend on the order of additions::

    min over x_v of (sum * 2^b + x_v) = r * 2^b + a                        ``sums.SumForm.least``
"""
