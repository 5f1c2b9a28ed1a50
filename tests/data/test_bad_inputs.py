"""Every broken source is one line that names the file, and leaves nothing half-written."""

import zipfile

import numpy as np
import pyarrow as pa
import pytest
import scipy.io

from data.conftest import red, shard, write
from made import tar
from rcad.data.registry import load
from rcad.errors import InputError

RECORD10 = bytes([3]) + bytes(3072)
RECORD100 = bytes([1, 2]) + bytes(3072)


def cut(path, keep):
    """The file, of which only so many bytes are left."""
    path.write_bytes(path.read_bytes()[:keep])
    return path


def cifar10(tmp, batch=RECORD10, keep=None):
    members = {f"c/data_batch_{i}.bin": RECORD10 for i in range(1, 5)}
    members |= {"c/data_batch_5.bin": batch, "c/test_batch.bin": RECORD10}
    return tar(tmp / "cifar-10-binary.tar.gz", members, keep)


def cifar100(tmp, train):
    return write(tmp / "bins", train_dot_bin=train, test_dot_bin=RECORD100)


def tiny(tmp, **changes):
    members = {"t/wnids.txt": b"n1\nn2", "t/val/val_annotations.txt": b"v.JPEG\tn1\t0\t0\t1\t1\n"}
    members |= {f"t/train/{n}/images/a.JPEG": red(1) for n in ("n1", "n2")} | {"t/val/images/v.JPEG": red(1)}
    members |= {key.replace("__", "/").replace("_dot_", "."): value for key, value in changes.items()}
    with zipfile.ZipFile(path := tmp / "tiny-imagenet-200.zip", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def svhn(tmp, label=1, keep=None):
    content = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[label], [2]])}
    for part in ("train", "test"):
        scipy.io.savemat(tmp / f"{part}_32x32.mat", content, do_compression=True)
    return cut(tmp / "train_32x32.mat", keep)


def pets(tmp, **more):
    return write(tmp / "pets", cat__a_dot_png=red(1), **more)


NAME = "train-00000-of-00001.parquet"


def shards(tmp, images=(1, 2), labels=(0, 1), name=NAME, keep=None, **options):
    return cut(shard(tmp / "hf" / name, images, labels, **options), keep).parent


def npz(tmp, keep=None, **arrays):
    np.savez(tmp / "d.npz", **arrays)
    return cut(tmp / "d.npz", keep)


def npy(tmp):
    """A header that says more than there is."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4000000, 1500), }".ljust(117) + b"\n"
    return write(tmp, d_dot_npy=b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header) / "d.npy"


PIXELS = np.zeros((4, 3, 5, 5), np.uint8)
Y = np.array([0, 1, 0, 1])

# (make the source, what the line must say)
UNCHECKED = [
    (lambda t: cifar10(t, keep=60), "tar.gz to be a whole archive"),
    (lambda t: cifar10(t, RECORD10[:-1]), "data_batch_5.bin to hold records of 3073"),
    (lambda t: tiny(t, t__val__images__v_dot_JPEG=b"x"), "t/val/images/v.JPEG to be an image"),
    (lambda t: tiny(t, t__val__val_annotations_dot_txt=b"v.JPEG\tn9\t0\n"), "line 1, but got 'v.JPEG.*n9"),
    (lambda t: svhn(t, keep=150), "train_32x32.mat to be a whole MATLAB 5 file"),
    (lambda t: svhn(t, label=11), "1 to 10, but got 11 in .*train_32x32.mat image 0"),
]
PLAIN = [
    (svhn, "expected md5 e26dedcc434d2e4c54c9b2d4a06d8373"),
    (tiny, "expected md5 90528d7ca1a48142e341f4ef8d21d0de .*; .*rename it if you made"),
    (lambda t: npz(t, x=np.zeros((0, 5)), y=np.zeros(0, int)), r"^expected examples in .*x \(0, 5\)"),
    (lambda t: tar(t / "cifar-10-python.tar.gz", {"a": b"b"}), "cifar-10-binary.tar.gz.*pickles"),
    (lambda t: cifar100(t, bytes([0, 100]) + bytes(3072)), "0 to 99, but got 100 in .*train.bin"),
    (lambda t: write(t / "bins", train_dot_bin=RECORD100), "expected test.bin in .*bins"),
    (lambda t: pets(t), "at least 2 classes in .*pets, but got only 'cat'"),
    (lambda t: pets(t, dog__a_dot_txt=b"x"), "expected images in .*dog, but got none"),
    (lambda t: write(t / "s", train__a__x=1, train__b__x=1, val__c__x=1), "but got 'c' as well"),
    (lambda t: shards(t, keep=200), "train-.*parquet to be a whole Parquet file"),
    (lambda t: shards(t, names=("photo", "label")), "image column img or image in .*but got photo, label; rename it"),
    (lambda t: shards(t, [1, None]), "parquet row 1, but got none"),
    (lambda t: shards(t, labels=pa.array([0, None], pa.int64())), "label in .*parquet row 1, but got null"),
    (lambda t: shards(t, labels=[0, 10**9]), "among 2 examples"),
    (lambda t: shards(t, name="train-00000-of-00003.parquet"), "expected 3 shards like train-.*but got 1"),
    (lambda t: shards(t, name="part-0.parquet"), r"expected train-\*.parquet in .*but got part-0.parquet"),
    (lambda t: npz(t, x=np.array([{}, []], object), y=Y), "a whole NumPy file, but .*Object arrays cannot be loaded"),
    (lambda t: npz(t, x=PIXELS, y=Y, keep=100), "d.npz to be a whole NumPy file"),
    (lambda t: npz(t, x=PIXELS), "but y is missing among x"),
    (lambda t: npz(t, x=np.where(PIXELS == 0, np.nan, 0), y=Y), "NaN or infinity in row 0"),
    (lambda t: npz(t, x=np.eye(4), y=np.array([0, 1, 2, np.nan])), "NaN or infinity in row 3"),
    (lambda t: npz(t, x=PIXELS - 0.5, y=Y), r"pixels in \[0, 1.0\] in .*without normalising"),
    (lambda t: "~nobody-at-all/x.csv", "home folder of a user in '~nobody-at-all/x.csv'"),
    (lambda t: "x" * 5000, "at x{120}, but got: File name too long"),
    (lambda t: npz(t, x=PIXELS, y=Y[:3]), r"x \(4, 3, 5, 5\) and y \(3,\)"),
    (lambda t: npz(t, x=np.zeros((4, 3, 5, 3), np.uint8), y=Y), r"but got both in shape \(4, 3, 5, 3\); store"),
    (lambda t: npz(t, x=PIXELS, y=Y - 1), "from 0, but got -1 in .*d.npz example 0"),
    (lambda t: npz(t, x_train=PIXELS, y_train=Y, x_test=PIXELS, y_test=Y + 1), "0 to 1, but got 2 in .*d.npz example"),
    (lambda t: npz(t, x_train=PIXELS, y_train=Y, x_test=PIXELS[..., :4], y_test=Y), "to agree in shape"),
]
CASES = [
    *((*case, {}) for case in (*UNCHECKED, *PLAIN)),
    (lambda t: pets(t, a_dot_csv=b"f,y"), "pets itself, but they lie in folders .*: leave it out", {"labels": "a.csv"}),
    (lambda t: cifar100(t, RECORD100), "labels to be one of fine, coarse, but got 'middle'", {"labels": "middle"}),
    (lambda t: pets(t), "size to be .* but got 0", {"size": 0}),
    (lambda t: write(t / "s", a__x_dot_png=b"", b__y_dot_png=b"?"), "can be read in .*s, but all", {"skip_bad": True}),
    (lambda t: pets(t), "to be one of size, skip_bad, but got 'sizes'", {"sizes": 3}),
    (npy, "d.npy to be a whole NumPy file", {"target": 0}),
    (lambda t: "digits", "no options for digits, .*, but got 'size'; leave it out$", {"size": 8}),
    (lambda t: write(t, a_dot_csv=b"x,y\n1,0\n") / "a.csv", "or Parquet shards to stream, but got", {"stream": True}),
]


@pytest.mark.parametrize(("make", "says", "options"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_one_line_and_nothing_left(tmp_path, make, says, options, request):
    if (make, says) in UNCHECKED:
        request.getfixturevalue("unchecked")
    source, cache = make(tmp_path), tmp_path / "cache"
    with pytest.raises(InputError, match=says) as caught:
        load(source, cache_dir=cache, **options)
    assert str(caught.value).startswith("expected ")
    assert not [path for path in (cache / "images").rglob("*") if path.is_file() and path.suffix != ".lock"]
