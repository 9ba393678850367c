"""Lower bounds of all plans: the mathematics, with the function of each formula.

A plan gives each variable v (the tiling of a tensor, the strategy of an op) a value x_v. Its cost is a sum of tables.
After exact elimination of the variables with at most two neighbours (``core.Core``) each table has one or two axes::

    E(x) = sum_v u_v(x_v) + sum_vw t_vw(x_v, x_w)                          ``dual.Dual.cost``

**Dual.** Each pair v, w gives numbers m_v(x_v) to v and m_w(x_w) to w, and keeps the rest. E stays the same sum, so
that the sum of all minima is a lower bound for every m::

    u'_v(x_v)       = u_v(x_v) + sum over pairs of v of m_v(x_v)           ``dual.Dual.with_given``
    t'_vw(x_v, x_w) = t_vw(x_v, x_w) - m_v(x_v) - m_w(x_w)                 ``dual.Pair.rest``
    B(m)            = sum_v min u'_v + sum_vw min t'_vw <= min E           ``dual.Dual.bound``

**Passes** (TRW-S; Kolmogorov, 2006) choose m so that B never falls. Let v have p pairs with earlier and q with later
variables, and s = 1 / max(p, q). A forward pass visits v in order and changes each of its q later pairs::

    m_v(x_v) <- m_v(x_v) - s * u'_v(x_v)                                   ``dual.Dual.forward``
    m_w(x_w) <- min over x_v of t_vw(x_v, x_w) - m_v(x_v)                  ``dual.Dual.forward``

Then min t'_vw = 0 and v keeps (1 - s q) u'_v, so that B = sum_v (1 - s q) min u'_v. A backward pass is the same with p
and q exchanged (``dual.Dual.backward``). Each forward pass also proposes an assignment::

    x_v = argmin u_v(x_v) + sum over earlier w of t_vw(x_v, x_w) + sum over later pairs of m_v(x_v)
                                                                           ``dual.Dual.forward``

**Values.** No assignment with the value x_v costs less than b_v(x_v). Costs are whole bytes, so that a value with
b_v(x_v) > cost of the best plan - 1 is in no better plan::

    b_v(x_v) = B + u'_v(x_v) - min u'_v
               + sum over pairs of v of (min over x_w of t'_vw(x_v, x_w) - min t'_vw)
                                                                           ``dual.Dual.at_least``
    keep x_v if b_v(x_v) <= best - 1                                       ``core.Core.take_out``

**Merged values.** Tilings that differ in the order of cuts alone form a group g. The sum of the least of each group is
a lower bound of E, and its m serves every value of the group::

    U_v(g)     = min over x_v in g of u_v(x_v)                             ``coarse.begin_coarsely``
    T_vw(g, h) = min over x_v in g, x_w in h of t_vw(x_v, x_w)             ``coarse.begin_coarsely``
    m_v(x_v)   = M_v(group of x_v)                                         ``coarse.begin_coarsely``

**Regions.** Let R be some variables, E_R their part of the sum with all that outer pairs give them, and B_R its bound.
Regions that share no variable add up::

    E_R(x) = sum_{v in R} (u'_v(x_v) - inner m_v) + sum_{vw in R} t_vw     ``dual.Dual.within``
    r_R    = min E_R - B_R, from below by branching                        ``regions.narrowed_down``
    B + sum_R r_R <= min E                                                 ``regions.raise_in_regions``

**Rounding.** Sums are floats, costs integers. With e(B) = 1e-9 |B| + 1e-3 (``core.rounding_error``) the bound is
ceil(B - e(B)) (``certify.certify``). The gap is (cost - bound) / bound.
"""
