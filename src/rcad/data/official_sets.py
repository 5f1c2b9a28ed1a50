"""The image sets known by name: their files, addresses, checksums and classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rcad.data.files import check_md5


@dataclass(frozen=True)
class Remote:
    """A file at its official address, with its published md5."""

    url: str
    md5: str

    @property
    def filename(self) -> str:
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class OfficialSet:
    """An image set and how it looks on disk.

    Args:
        files: what must be downloaded; optional: what may be.
        folder: what the official archive unpacks to; marker: a file that only this folder has.
    """

    name: str
    n_classes: int
    files: tuple[Remote, ...]
    folder: str
    marker: str
    note: str
    optional: tuple[Remote, ...] = ()
    classes: tuple[str, ...] = ()

    def find(self, folder: Path) -> Path | None:
        """The official archive or its unpacked folder in `folder`, unpacked first: it is faster to read."""
        for candidate in (folder, folder / self.folder):
            if (candidate / self.marker).is_file():
                return candidate
        archive = folder / self.files[0].filename
        return archive if archive.is_file() else None

    def check(self, file: Path) -> None:
        """Compare one of the official files with its published md5; files of other names pass."""
        for remote in (*self.files, *self.optional):
            if remote.filename == file.name:
                remedy = "download it again, or rename it if you made this file yourself"
                check_md5(file, remote.md5, remedy)


CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_CLASSES = tuple(  # one string: a hundred quoted lines would hide the table below
    """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm""".split()  # noqa: SIM905
)

_TORONTO = "https://www.cs.toronto.edu/~kriz"
_SVHN = "http://ufldl.stanford.edu/housenumbers"

OFFICIAL: dict[str, OfficialSet] = {
    each.name: each
    for each in (
        OfficialSet(
            "cifar10",
            10,
            (Remote(f"{_TORONTO}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
            folder="cifar-10-batches-bin",
            marker="data_batch_1.bin",
            note="60,000 images 32x32 in 10 classes",
            classes=CIFAR10_CLASSES,
        ),
        OfficialSet(
            "cifar100",
            100,
            (Remote(f"{_TORONTO}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
            folder="cifar-100-binary",
            marker="train.bin",
            note="60,000 images 32x32 in 100 classes",
            classes=CIFAR100_CLASSES,
        ),
        OfficialSet(
            "svhn",
            10,
            (
                Remote(f"{_SVHN}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
                Remote(f"{_SVHN}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
            ),
            folder="housenumbers",
            marker="train_32x32.mat",
            note="99,289 house-number digits 32x32, and 531,131 extra",
            optional=(Remote(f"{_SVHN}/extra_32x32.mat", "a93ce644f1a588dc4d68dda5feec44a7"),),
            classes=tuple("0123456789"),
        ),
        OfficialSet(
            "tiny-imagenet",
            200,
            (Remote("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
            folder="tiny-imagenet-200",
            marker="wnids.txt",
            note="110,000 images 64x64 in 200 classes",
        ),
    )
}
