"""The PyPI package `safetensors` reads what we write, and we read what it writes, to the bit.

usage: safetensors_test.py <safetensors_tool>      exit code 77: skipped, with the reason
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TOOL = sys.argv[1]


def tool(*args):
    return subprocess.run([TOOL, *map(str, args)], check=True, capture_output=True, text=True).stdout.strip()


def test_package_reads_our_checkpoint(folder):
    saved = pathlib.Path(tool("save", folder / "checkpoints"))
    model = load_file(saved / "model.safetensors")
    shapes = {name: (str(tensor.dtype), tensor.shape) for name, tensor in model.items()}
    assert shapes == {
        "fc1.weight": ("float32", (3, 4)),
        "fc1.bias": ("float32", (4,)),
        "norm.count": ("int64", ()),
    }, shapes
    if not shutil.which("zstd"):
        print("no zstd (apt install zstd): its side is skipped")
        return
    subprocess.run(["zstd", "-tq", saved / "state.safetensors.zst"], check=True)   # with the frame's own checksum
    shown = subprocess.run(["zstd", "-lv", saved / "state.safetensors.zst"], check=True, capture_output=True, text=True).stdout
    assert "XXH64" in shown and "Decompressed Size" in shown, shown
    subprocess.run(["zstd", "-dq", saved / "state.safetensors.zst"], check=True)
    state = load_file(saved / "state.safetensors")
    assert state["shard.0.mask"].dtype == bool and state["shard.1.ring"].shape == (0, 4)
    with safe_open(saved / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt", "run_id": "tiny-1", "step": "200"}, file.metadata()
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["step"] == 200 and set(manifest["files"]["model.safetensors"]["tensors"]) == set(model)


def test_we_read_what_the_package_writes(folder):
    random = np.random.default_rng(7)
    types = ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    tensors = {f"layer.{t}": random.integers(0, 2, (3, 5)).astype(t) for t in types}
    tensors["gewicht \u00e9 \"quoted\""] = random.standard_normal((2, 3, 4)).astype("float32")
    tensors["scalar"] = np.array(2.5, dtype="float32")
    tensors["empty"] = np.zeros((0, 3), dtype="float32")
    save_file(tensors, folder / "theirs", metadata={"key": "value"})
    tool("rewrite", folder / "theirs", folder / "ours")
    back = load_file(folder / "ours")
    assert set(back) == set(tensors)
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape, name
        assert back[name].tobytes() == tensor.tobytes(), name
    with safe_open(folder / "ours", framework="np") as file:
        assert file.metadata() == {"key": "value"}


for name, test in [item for item in globals().items() if item[0].startswith("test_")]:
    with tempfile.TemporaryDirectory() as folder:
        test(pathlib.Path(folder))
    print("ok", name)
