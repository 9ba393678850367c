"""The counting of collectives in XLA's text, on lines whose bytes are known by hand."""

from __future__ import annotations

import pytest

from hlo_bytes import collectives


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        # 2 groups of 2, each device ends with 8 floats and had 4 of them: 16 bytes to each of 4 devices
        ("%a = f32[8]{0} all-gather(%x), replica_groups={{0,1},{2,3}}, dimensions={0}", 64),
        ("%a = f32[8]{0} all-gather(%x), replica_groups=[2,2]<=[4], dimensions={0}", 64),
        ("%a = f32[8]{0} all-gather(%x), replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}", 64),
        # each device reduces its half of 8 floats, and takes it from the other one
        ("%a = f32[4]{0} reduce-scatter(%x), replica_groups={{0,1},{2,3}}, to_apply=%add", 64),
        ("%a = f32[8]{0} all-reduce(%x), replica_groups={{0,1},{2,3}}, to_apply=%add", 128),
        ("%a = (f32[8]{0}, f32[2]{0}) all-reduce(%x, %y), replica_groups={{0,1,2,3}}, to_apply=%add", 240),
        # of 8 floats on each of 4 devices 2 stay
        ("%a = f32[4,2]{1,0} all-to-all(%x), replica_groups={{0,1,2,3}}, dimensions={0}", 96),
        ("%a = f32[8]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0},{2,2}}", 64),
        ("%a = f32[8]{0} add(%x, %y)", 0),
    ],
)
def test_bytes_by_hand(line: str, moved: int) -> None:
    assert sum(collective.bytes for collective in collectives(line, 4)) == moved
