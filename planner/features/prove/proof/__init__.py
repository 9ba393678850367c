"""The proof: programs of workers, followed and compared with the ops of their model.

The mathematics, with the function of each formula. A *claim* says of a buffer b that it holds a region of a tensor T of
the model, from lo on; or, of a reduction over the index set K, contributions from disjoint boxes K_1, K_2, ...::

    b[i] = T[lo + i]                                                       ``claims.Claim``
    b[i] = sum over k in K_1, K_2, ... of term(lo + i, k)                  ``claims.Partial``

A proof is an induction along an order that the program's data allow (``programs.prove``). It begins with inputs, state
and constants, and ends where every collected buffer has the claim that the program states, with final values.

**Fetches.** The pieces of a fetch tile its target (``programs.prove``). A copied piece keeps its claim. Contributions
add up if their boxes are disjoint, and are the tensor if these cover K. For Max and Min boxes may meet::

    K_1 and K_2 disjoint, K_1 + K_2 + ... = K  =>  b[i] = T[lo + i]        ``claims.Partial.with_others``

**Ops.** A description says of each output element an expression e(i) of elements of the inputs
(``expression.Described.at``). With the claims of what it reads put in, the local op's expression and that of the
model's op must be one tree (``pairing.Pairing``). Each pair of variables differs by an offset d, and each pair of
indices is an equation, for a local index a, its claim's beginning lo and the model's index A::

    a(v) + lo = A(v + d) for every v of the local box                      ``pairing.Constraints.equate``
    d is proposed from v = 0: A(d) = a(0) + lo                             ``index.solve``
    and every equation is checked on the whole box                         ``index.equal``

Indices are sums of atoms, exact fractions; an atom is a variable, a quotient or a remainder. Two are equal if their
normal forms are, else if they are at each place of a small box; nothing else is called equal::

    c_0 + sum_j c_j * atom_j                                               ``index.Lin``
    (m * q + r) // m = q + r // m,  (m * q + r) % m = r % m                ``index.divided``

The output then is a claim: it begins at d, and holds contributions of the box of d in the index set of the reduction
(``placing.partial_of``).

**Reuse.** A call of the same kind whose inputs lie s further has outputs that lie d further, if A moves as a does:
exactly so for affine indices, and where divided numbers move by multiples of the divisor (``placing.Placed.again``).

**Local rules.** Where the expressions of both are out of reach, the nodes must be, word for word, those of the op's own
local rule for that part (``rules.by_rule``). ``tofu ops --verify`` executes these rules for every cut.

The proof is sound and not complete: an equation that is not seen ends it with a fault or as unproven.
"""
