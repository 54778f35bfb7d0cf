"""Generators that run on this machine: vision language models, and text ones, in transformers.

``docs/generators-local.md`` says what they need and how far they were tried.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visar.errors import CheckpointError, GenerationError, InvalidOption
from visar.generation.decoding import Choices, Listener
from visar.generation.local_models import (
    Reader,
    Reads,
    load_model,
    load_reader,
    reads_of,
    refuse_missing_packages,
)
from visar.generation.protocol import OnText, Prompt, Reply, unheard
from visar.generation.published import PUBLISHED
from visar.models.checkpoints import Checkpoint, find_checkpoint
from visar.models.devices import check_device, is_out_of_memory

if TYPE_CHECKING:
    from PIL.Image import Image

_SEED = 0
# A model keeps notes of the prompt it works on, and chance is one for the whole process.
_ONE_AT_A_TIME = threading.RLock()
# Without what a checkpoint's configuration says of chance.
_GREEDY = {
    "do_sample": False,
    "num_beams": 1,
    "temperature": None,
    "top_p": None,
    "top_k": None,
    "min_p": None,
}
_GIVE_LESS = "Give it less: fewer pages (--max-k), or smaller ones (--send-megapixels)."


class LocalGenerator:
    """One checkpoint of a language model; it is loaded when it is first used, once."""

    def __init__(
        self,
        name: str,
        source: str | Checkpoint | None = None,
        *,
        revision: str | None = None,
        device: str = "auto",
    ) -> None:
        """Name a model of the paper, the folder of a checkpoint, or a hub name.

        ``source`` says where it is, if that is not where the name says; ``revision`` goes with
        the hub. The configuration of a checkpoint that is no model of the paper is looked at now.
        """
        check_device(device)
        self.name = name
        self._published = PUBLISHED.get(name)
        if source is None and self._published is not None:
            source = self._published.repository
            revision = revision or self._published.revision
        self._source = source or name
        self._revision = revision
        self._device = device
        self.reads: Reads = self._published.reads if self._published else reads_of(self._checkpoint)

    def fetch(self) -> None:
        """Download the checkpoint, if it is not on this machine."""
        self._checkpoint.folder()

    def count_tokens(self, text: str) -> int:
        """How many tokens a text takes."""
        with _ONE_AT_A_TIME:
            tokenizer = self._reader.tokenizer
            return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = unheard,
    ) -> Reply:
        """Write a reply, always the same one to the same prompt.

        With ``choices`` the reply is as long as the choice is, whatever ``max_tokens`` says, and
        ``on_text`` is called with the whole of it.
        """
        if max_tokens < 1:
            raise InvalidOption(f"A reply has at least one token, not {max_tokens}.")
        with _ONE_AT_A_TIME:
            inputs = self._inputs(prompt)
            held = Choices(choices, self._reader.tokenizer, self._ends[0]) if choices else None
            limit = held.longest if held else max_tokens
            self._refuse_beyond_context(inputs, limit)
            if held is None:
                listener = Listener(self._reader.tokenizer, on_text)
                self._write(inputs, limit, listener, self._decoding)
                text = listener.text
            else:
                listener = Listener(self._reader.tokenizer, unheard)
                self._write(inputs, limit, listener, self._held_to(held, inputs))
                text = held.text_of(listener.tokens)
                on_text(text)
        return Reply(
            text=text,
            model=self._described,
            input_tokens=inputs["input_ids"].shape[1],
            output_tokens=len(listener.tokens),
            complete=listener.tokens[-1] in self._ends,
        )

    def _inputs(self, prompt: Prompt) -> Any:
        """What the model is given, on its device."""
        reader = self._reader
        images = [_in_colour(image) for image in prompt.images]
        if images and self.reads == "text":
            raise GenerationError(f"{self.name} reads text alone, and was given page images.")
        text = reader.template.render(prompt)
        beginning = reader.tokenizer.bos_token
        options: dict[str, Any] = {"return_tensors": "pt"}
        if self.reads == "text" or (beginning and text.startswith(beginning)):
            options["add_special_tokens"] = False  # the template wrote them
        try:
            # The images of one prompt as one list: LLaVA-OneVision sees several otherwise.
            batch = (
                reader.processor(text=[text], images=[images] if images else None, **options)
                if self.reads == "images"
                else reader.tokenizer([text], **options)
            )
        except ValueError as error:
            raise GenerationError(f"{self.name} cannot read the prompt: {error}") from error
        with self._within_memory():
            placed = batch.to(self._model.device)
            for key, value in placed.items():
                if value.is_floating_point():
                    placed[key] = value.to(self._model.dtype)
        return placed

    def _write(self, inputs: Any, limit: int, listener: Listener, decoding: dict[str, Any]) -> None:
        """Let the model write. What is raised meanwhile, Ctrl-C too, ends it: no thread is left."""
        import torch

        places = [self._model.device] if self._model.device.type == "cuda" else []
        with (
            self._within_memory(),
            torch.inference_mode(),
            torch.random.fork_rng(places),
        ):
            torch.manual_seed(_SEED)
            self._model.generate(
                **inputs,
                max_new_tokens=limit,
                streamer=listener,
                eos_token_id=self._ends,
                pad_token_id=self._ends[0],
                **decoding,
            )

    @property
    def _decoding(self) -> dict[str, Any]:
        as_configured = self._published and self._published.decoding == "checkpoint"
        return {} if as_configured else dict(_GREEDY)

    def _held_to(self, choices: Choices, inputs: Any) -> dict[str, Any]:
        prompt_length = inputs["input_ids"].shape[1]

        def allowed(_: int, tokens: Any) -> list[int]:
            return choices.allowed_after(tokens[prompt_length:].tolist())

        # A penalty on what was said before would prefer the choice the prompt does not mention.
        return {**_GREEDY, "repetition_penalty": 1.0, "prefix_allowed_tokens_fn": allowed}

    def _refuse_beyond_context(self, inputs: Any, limit: int) -> None:
        longest = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        given = inputs["input_ids"].shape[1]
        if longest is not None and given + limit > longest:
            raise GenerationError(
                f"The prompt takes {given} tokens and the reply up to {limit}, together "
                f"{given + limit}; {self.name} has room for {longest}. {_GIVE_LESS}"
            )

    @contextlib.contextmanager
    def _within_memory(self) -> Iterator[None]:
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise GenerationError(
                f"The memory of the device ({self._model.device.type}) does not suffice for "
                f"{self.name} and this prompt. {_GIVE_LESS}"
            ) from error

    @functools.cached_property
    def _checkpoint(self) -> Checkpoint:
        refuse_missing_packages(self.name)
        found = find_checkpoint(self._source, self._revision)
        expected = self._published and self._published.model_class
        if expected and expected not in found.architectures:
            raise CheckpointError(
                f"{found.name} is {', '.join(found.architectures)} where {expected} was expected: "
                "the repository has changed. Give the revision you want."
            )
        return found

    @functools.cached_property
    def _reader(self) -> Reader:
        return load_reader(self._checkpoint, self.reads)

    @functools.cached_property
    def _model(self) -> Any:
        return load_model(self._checkpoint, self.reads, self._device)

    @functools.cached_property
    def _ends(self) -> list[int]:
        """The tokens that end a reply: the template's first, then those of the configurations."""
        configured = self._model.generation_config.eos_token_id
        ends = configured if isinstance(configured, list) else [configured]
        candidates = [
            self._reader.template.end_of_turn(),
            *ends,
            self._reader.tokenizer.eos_token_id,
        ]
        found = list(dict.fromkeys(token for token in candidates if token is not None))
        if not found:
            raise CheckpointError(f"{self._checkpoint.name} names no token that ends a reply.")
        return found

    @functools.cached_property
    def _described(self) -> str:
        checkpoint = self._checkpoint
        name = Path(checkpoint.name).resolve().name if checkpoint.is_local else checkpoint.name
        return f"{name}@{checkpoint.fingerprint}"


def _in_colour(image: Image) -> Image:
    return image if image.mode == "RGB" else image.convert("RGB")
