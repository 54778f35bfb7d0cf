"""OCR engines: RapidOCR, installed with pip, and the program Tesseract."""

from __future__ import annotations

import functools
import importlib.util
import io
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from visar.documents.layout import Piece
from visar.documents.options import OcrEngine
from visar.documents.processes import child_environment, last_line
from visar.documents.repair import clean_pieces
from visar.documents.sandbox import sandbox_command
from visar.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from PIL.Image import Image

# More pixels cost time without improving the results.
DPI = 200
LONGEST_SIDE = 2000
# Minimum difference of gray values in an image with text.
_LEAST_CONTRAST = 24
_DETECTION_SIDE = 960
_TESSERACT_SECONDS = 120
_TESSERACT_CONFIDENCE = 30
_DETECTION_MODEL, _RECOGNITION_MODEL = "PP-OCRv6_det_small.onnx", "PP-OCRv6_rec_small.onnx"


class OcrFailed(Exception):
    """The failure of an engine on an image; the message continues after the page's name."""


def is_installed(engine: OcrEngine) -> bool:
    if engine == "tesseract":
        return shutil.which("tesseract") is not None
    return all(importlib.util.find_spec(name) for name in ("rapidocr", "onnxruntime"))


def read_image(image: Image, engine: OcrEngine, threads: int | None = None) -> list[Piece]:
    """Return the words of an RGB image, with their positions in pixels.

    This is safe in several threads and processes; each process loads its models once. ``threads``
    is the number of threads of the engine; None leaves it to the engine. Raises MissingExtra or
    InvalidOption if the engine isn't installed, OcrFailed if it fails.
    """
    darkest, lightest = image.convert("L").getextrema()
    if float(lightest) - float(darkest) < _LEAST_CONTRAST:  # type: ignore[arg-type]
        return []
    return clean_pieces(_ENGINES[engine](image, threads))


def has_column_order(engine: OcrEngine) -> bool:
    """Return whether an engine orders words by column."""
    return engine == "tesseract"


def _rapidocr(image: Image, threads: int | None) -> list[Piece]:
    # RapidOCR expects BGR, the channel order of OpenCV.
    pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
    with _RAPIDOCR_LOCK:
        reader = _rapidocr_reader(threads)
        try:
            result = reader(pixels)
        except Exception as error:
            raise OcrFailed(f"couldn't be read by RapidOCR: {last_line(str(error))}") from error
    if not result.txts:
        return []
    return [
        piece
        for text, box, parts in zip(result.txts, result.boxes, result.word_results, strict=True)
        for piece in _split_line(text, _bounds(box), parts)
    ]


# RapidOCR isn't thread-safe: it keeps intermediate results in the object.
_RAPIDOCR_LOCK = threading.Lock()


@functools.lru_cache(maxsize=1)
def _rapidocr_reader(threads: int | None) -> Any:
    if not is_installed("rapidocr"):
        raise MissingExtra("Reading pages without a text layer (OCR)", "ocr")
    import rapidocr

    models = Path(rapidocr.__file__).parent / "models"
    for name in (_DETECTION_MODEL, _RECOGNITION_MODEL):
        # RapidOCR would download a missing file.
        if not (models / name).is_file():
            raise MissingExtra(f"OCR with the installed rapidocr, which lacks {name},", "ocr")
    return rapidocr.RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.use_cls": False,
            "Global.return_word_box": True,
            "Global.max_side_len": LONGEST_SIDE,
            "Det.limit_type": "max",
            "Det.limit_side_len": _DETECTION_SIDE,
            "Det.model_path": str(models / _DETECTION_MODEL),
            "Rec.model_path": str(models / _RECOGNITION_MODEL),
            # -1 means all cores.
            "EngineConfig.onnxruntime.intra_op_num_threads": threads or -1,
        }
    )


def _split_line(text: str, line: tuple[float, float, float, float], parts: Any) -> Iterator[Piece]:
    """Yield the words of a line with their boxes.

    RapidOCR returns words or single characters, depending on the script. If they don't add up to
    the text of the line, words are positioned by their share of the characters.
    """
    left, top, right, bottom = line
    size = min(bottom - top, right - left)
    turn = 1 if bottom - top > 1.5 * (right - left) and len(text) > 1 else 0
    boxes = [_bounds(box) for part, _, box in parts for _ in part if not part.isspace()]
    words = text.split()
    fits = len(boxes) == sum(len(word) for word in words) and turn == 0
    position = 0
    for word in words:
        if fits:
            own = boxes[position : position + len(word)]
            x0, x1 = min(box[0] for box in own), max(box[2] for box in own)
            position += len(word)
            yield Piece(word, x0, top, max(x1, x0 + 1), bottom, size)
        else:
            start = position / len(text)
            position += len(word) + 1
            end = min(1.0, (position - 1) / len(text))
            if turn:
                y0, y1 = top + (bottom - top) * start, top + (bottom - top) * end
                yield Piece(word, left, y0, right, y1, size, turn)
            else:
                x0, x1 = left + (right - left) * start, left + (right - left) * end
                yield Piece(word, x0, top, x1, bottom, size)


def _bounds(quad: Any) -> tuple[float, float, float, float]:
    points = np.asarray(quad, float).reshape(-1, 2)
    (left, top), (right, bottom) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
    return left, top, right, bottom


def _tesseract(image: Image, threads: int | None) -> list[Piece]:  # noqa: ARG001 - always uses one
    program = shutil.which("tesseract")
    if program is None:
        raise InvalidOption(
            "The OCR engine tesseract isn't installed. Install it (on Debian: apt install "
            "tesseract-ocr), or choose rapidocr."
        )
    stream = io.BytesIO()
    image.save(stream, "PPM")
    try:
        result = subprocess.run(  # noqa: S603
            sandbox_command([program, "stdin", "stdout", "--dpi", str(DPI), "tsv"]),
            input=stream.getvalue(),
            capture_output=True,
            timeout=_TESSERACT_SECONDS,
            check=True,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise OcrFailed(
            f"couldn't be read by Tesseract within {_TESSERACT_SECONDS} seconds"
        ) from error
    except subprocess.CalledProcessError as error:
        reason = last_line(error.stderr.decode(errors="replace"))
        raise OcrFailed(f"couldn't be read by Tesseract: {reason}") from error
    return list(_tesseract_words(result.stdout.decode(errors="replace")))


def _tesseract_words(table: str) -> Iterator[Piece]:
    for row in table.splitlines()[1:]:
        cells = row.split("\t", 11)
        if len(cells) < 12 or float(cells[10]) < _TESSERACT_CONFIDENCE or not cells[11].strip():
            continue
        left, top, width, height = (float(cell) for cell in cells[6:10])
        yield Piece(cells[11].strip(), left, top, left + width, top + height, height)


_ENGINES: dict[OcrEngine, Callable[[Any, int | None], list[Piece]]] = {
    "rapidocr": _rapidocr,
    "tesseract": _tesseract,
}
