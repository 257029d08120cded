"""Random documents and random updates of them, as values of the stand-in for a MongoDB server."""

from typing import Any

from bson import Decimal128, Int64
from hypothesis import strategies as st

from dev.servers.mongodb.values.documents import UNDEFINED, Symbol

NAMES = st.sampled_from(["a", "b", "c", "0", "1", "x.y", "$d", "é", "long name"])
PARTS = st.sampled_from(["a", "b", "c", "0", "1", "2", "5"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(-(2**40), 2**40).map(Int64), st.sampled_from([0.0, -0.0, 1.5, 3.0, float("nan"), float("inf")]),
    st.sampled_from(["", "x", "é"]), st.sampled_from(["1.50", "-0", "1E+3", "NaN"]).map(Decimal128), st.just(UNDEFINED), st.just(Symbol("s")),
)  # fmt: skip
VALUES: Any = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=5).map(lambda fields: {"_id": 1, **fields})
PATHS = st.lists(PARTS, min_size=1, max_size=3).map(".".join)
OPERATORS = st.fixed_dictionaries(
    {},
    optional={
        "$set": st.dictionaries(PATHS, VALUES, min_size=1, max_size=2),
        "$unset": st.dictionaries(PATHS, st.just(""), min_size=1, max_size=2),
        "$inc": st.dictionaries(PATHS, st.integers(-3, 3), min_size=1, max_size=1),
        "$min": st.dictionaries(PATHS, SCALARS, min_size=1, max_size=1),
        "$push": st.dictionaries(
            PATHS,
            st.one_of(
                VALUES,
                st.fixed_dictionaries(
                    {"$each": st.lists(VALUES, max_size=3)},
                    optional={
                        "$position": st.integers(-3, 6),
                        "$slice": st.integers(-3, 3),
                        "$sort": st.sampled_from([1, -1]),
                    },
                ),
            ),
            min_size=1,
            max_size=1,
        ),
        "$addToSet": st.dictionaries(PATHS, SCALARS, min_size=1, max_size=1),
        "$pop": st.dictionaries(PATHS, st.sampled_from([1, -1]), min_size=1, max_size=1),
        "$pull": st.dictionaries(PATHS, SCALARS.filter(lambda value: value is not UNDEFINED), min_size=1, max_size=1),
        "$rename": st.dictionaries(PATHS, PATHS, min_size=1, max_size=1),
    },
).filter(bool)
