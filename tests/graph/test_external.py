"""External data as a model states it: what is refused before any file is opened, and which folder is meant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from planner.errors import ModelError
from planner.graph.core.model import DType
from planner.graph.files.data_folder import (
    DataFolder,
    chosen_folder,
    data_folder_of,
    followed,
    note_data_folder,
    without_data_folder,
)
from planner.graph.files.external import ExternalValue, external_values, stored_bytes
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto

GOOD = {"location": "w.bin", "offset": "4096", "length": "48"}


def model_of(weight: TensorProto) -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "W"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, size]) for name, size in (("x", 3), ("y", 4))]
    graph = helper.make_graph([node], "g", values[:1], values[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def external(entries: Mapping[str, str] = GOOD) -> TensorProto:
    tensor = TensorProto(name="W", dims=[3, 4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def test_where_a_value_lies() -> None:
    graph = graph_from_proto(model_of(external()))
    value = external_values(graph)["W"]
    assert (value.location, value.offset, value.size_bytes, value.parts) == ("w.bin", 4096, 48, ("w.bin",))
    short = external_values(graph_from_proto(model_of(external({"location": "./a/w.bin"}))))["W"]
    assert (short.offset, short.size_bytes, short.parts) == (0, 48, ("a", "w.bin"))


def test_narrow_integers_share_bytes() -> None:
    assert [stored_bytes(dtype, 5) for dtype in (DType.INT4, DType.UINT2, DType.BFLOAT16)] == [3, 2, 10]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"location": "/etc/passwd"}, "'/etc/passwd', which is not inside the model's folder"),
        ({"location": "a/../../w.bin"}, "not inside the model's folder"),
        ({"location": "..\\w.bin"}, "not inside the model's folder"),
        ({"location": "C:\\w.bin"}, "not inside the model's folder"),
        ({"location": ""}, "not inside the model's folder"),
        ({"location": "."}, "not inside the model's folder"),
        ({"location": "w\0.bin"}, "not inside the model's folder"),
        ({"offset": "-1"}, "offset '-1' of 'w.bin', which is no number of bytes"),
        ({"offset": "1_000"}, "which is no number of bytes"),
        ({"offset": "٣"}, "which is no number of bytes"),
        ({"offset": "9" * 5000}, "which is no number of bytes"),
        ({"length": "many"}, "length 'many' of 'w.bin', which is no number of bytes"),
        ({"length": "44"}, "has 44 bytes of data in 'w.bin'; its shape [3, 4] of float32 needs 48"),
        ({"length": "0"}, "has 0 bytes of data"),
    ],
)
def test_what_a_model_cannot_mean_is_refused(change: Mapping[str, str], said: str) -> None:
    with pytest.raises(ModelError) as caught:
        graph_from_proto(model_of(external({**GOOD, **change})))
    assert "'W'" in caught.value.what
    assert said in caught.value.what


def test_a_key_twice_is_refused() -> None:
    weight = external()
    weight.external_data.add(key="location", value="other.bin")
    with pytest.raises(ModelError, match="'W' says twice where its data lie"):
        graph_from_proto(model_of(weight))


@pytest.mark.parametrize("kind", ["raw and typed", "raw and external", "typed and external", "raw and stale external"])
def test_two_values_are_refused(kind: str) -> None:
    weight = TensorProto(name="W", dims=[3, 4], data_type=TensorProto.FLOAT)
    if "external" in kind:
        weight = external()
        weight.data_location = TensorProto.DEFAULT if "stale" in kind else TensorProto.EXTERNAL
    if "raw" in kind:
        weight.raw_data = bytes(48)
    if "typed" in kind:
        weight.float_data.extend([1.0] * 12)
    with pytest.raises(ModelError, match="'W' has several values: "):
        graph_from_proto(model_of(weight))


def test_metadata_does_not_say_where_values_lie() -> None:
    model = model_of(helper.make_tensor("V", TensorProto.FLOAT, [1], [1.0]))
    model.graph.input.add().CopyFrom(helper.make_tensor_value_info("W", TensorProto.FLOAT, [3, 4]))
    notes = {"tofu.external": {"W": {"location": "../../etc/passwd"}}, "tofu.unloaded": ["W"]}
    model.metadata_props.extend(
        onnx.StringStringEntryProto(key=key, value=json.dumps(value)) for key, value in notes.items()
    )
    graph = graph_from_proto(model)
    assert graph.constants["W"] is None
    assert external_values(graph) == {}


@pytest.fixture
def values() -> list[ExternalValue]:
    return list(external_values(graph_from_proto(model_of(external()))).values())


@pytest.fixture
def source(tmp_path: Path) -> DataFolder:
    """A model with its data in ``one/model``; there are folders ``one/work`` and ``two``, too."""
    for name in ("one/model", "one/work", "two"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "one/model/w.bin").touch()
    file = tmp_path / "one/model/m.onnx"
    file.write_bytes(model_of(external()).SerializeToString())
    found = data_folder_of(graph_from_proto(model_of(external())), file)
    assert found == DataFolder(file.parent, "m.onnx", hashlib.sha256(file.read_bytes()).hexdigest())
    return found


def test_a_folder_is_found_when_all_moves_and_when_the_graph_alone_does(
    source: DataFolder, values: list[ExternalValue], tmp_path: Path
) -> None:
    recorded = source.recorded(tmp_path / "one/work")
    assert recorded[:2] == ("../model", str(tmp_path / "one/model"))
    for base in ("one/work", "two"):
        folders = followed(tmp_path / base, recorded, values).folders
        assert chosen_folder(folders, values).resolve() == tmp_path / "one/model"
    (tmp_path / "one").rename(tmp_path / "three")
    found = followed(tmp_path / "three/work", recorded, values)
    assert [folder.resolve() for folder in found.folders] == [tmp_path / "three/model"]
    assert found.refused == (
        f"recorded as their folder: {str(tmp_path / 'one/model')!r}, where no file 'm.onnx' with the digest that is "
        "recorded names them",
    )


def test_a_record_is_followed_no_further_than_a_model_proves(
    source: DataFolder, values: list[ExternalValue], tmp_path: Path
) -> None:
    base, folder, digest = tmp_path / "two", str(tmp_path / "one/model"), source.sha256
    file = tmp_path / "one/model/m.onnx"
    (tmp_path / "two/inner").mkdir()
    (tmp_path / "two/link").symlink_to(tmp_path / "one/model")
    for record, is_followed in (
        ((folder, folder, "m.onnx", digest), True),
        ((folder, folder), False),
        ((folder, folder, "", ""), False),
        ((folder, folder, "m.onnx", "0" * 64), False),
        ((folder, folder, "./m.onnx", digest), False),
        ((f"{folder}/..", f"{folder}/..", "model/m.onnx", digest), False),
        (("/etc", "/etc", "m.onnx", digest), False),
        (("/etc", "/etc", str(file), digest), False),
        (("link", "link", "", ""), False),
        (("inner", "inner"), True),
        ((".", ".", "", ""), True),
    ):
        assert bool(followed(base, record, values).folders) == is_followed, record
    strange = external({"location": "passwd"})
    others = list(external_values(graph_from_proto(model_of(strange))).values())
    assert not followed(base, (folder, folder, "m.onnx", digest), others).folders


def test_a_model_says_where_its_data_lie_once(source: DataFolder, tmp_path: Path) -> None:
    graph = graph_from_proto(model_of(external()))
    model = to_model(graph)
    for folder in (DataFolder(tmp_path / "a"), source):
        note_data_folder(model, folder, tmp_path / "two")
    again = graph_from_proto(model)
    assert json.loads(again.notes["tofu.data_folder"]) == list(source.recorded(tmp_path / "two"))
    found = data_folder_of(again, tmp_path / "two/t.onnx")
    assert found is not None
    assert (found.path.resolve(), found.model, found.sha256) == (source.path, "m.onnx", source.sha256)
    assert to_model(without_data_folder(again)) == to_model(graph)
    whole = model_of(helper.make_tensor("W", TensorProto.FLOAT, [3, 4], [1.0] * 12))
    assert data_folder_of(graph_from_proto(whole), tmp_path / "m.onnx") is None
    note_data_folder(whole, None, tmp_path)
    assert not whole.metadata_props


@pytest.mark.parametrize("text", ["[", '"a"', '["a"]', '["a", 1]', '["a\\u0000", "b"]', '["a", "\\ud800"]'])
def test_a_folder_that_is_none(text: str, tmp_path: Path) -> None:
    model = model_of(external())
    model.metadata_props.add(key="tofu.data_folder", value=text)
    with pytest.raises(ModelError, match=r"tofu\.data_folder is not|no folder of external data can be named"):
        data_folder_of(graph_from_proto(model), tmp_path / "m.onnx")


def test_a_shape_that_is_external_data_is_named() -> None:
    target = TensorProto(name="s", dims=[2], data_type=TensorProto.INT64, data_location=TensorProto.EXTERNAL)
    target.external_data.add(key="location", value="w.bin")
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [4, 6]), ("y", [8, 3]))
    ]
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "s"], ["y"])], "g", values[:1], values[1:], [target])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(ModelError) as caught:
        graph_from_proto(model)
    assert caught.value.facts[0].endswith("; s: external data, which planning does not read")
    assert caught.value.hint.endswith("(onnx.save with size_threshold=1024)")
