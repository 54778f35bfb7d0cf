"""Language models that run on this machine: vision and text models, in transformers.

``docs/generators.md`` says what they need and how they were tested.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from visar.errors import (
    CheckpointError,
    EncoderUnavailable,
    GenerationError,
    GeneratorUnavailable,
    InvalidOption,
    PromptTooLong,
)
from visar.generation.chat_templates import ChatTemplate, tokenize
from visar.generation.generator import (
    OnText,
    Prompt,
    Reads,
    Reply,
    generate_in_turn,
    ignore_text,
)
from visar.generation.parsing import choice_text
from visar.generation.registry import INSTALL, PUBLISHED, missing_packages
from visar.models.checkpoints import Checkpoint, find_checkpoint
from visar.models.devices import (
    Batches,
    attention_for,
    check_device,
    choose_device,
    choose_dtype,
    free_memory,
    is_out_of_memory,
)
from visar.models.loading import import_torchvision, loading, refuse_incomplete

_logger = logging.getLogger(__name__)

_LLAVA = "LlavaOnevisionForConditionalGeneration"
_SEED = 0
# Callers choose the batch size; it is halved when memory runs out.
_LARGEST_BATCH = 1024
# Held while a model samples: torch has one random generator for the whole process.
_SAMPLING_LOCK = threading.Lock()
# Overrides the sampling options of a checkpoint's configuration.
_GREEDY = {
    "do_sample": False,
    "num_beams": 1,
    "temperature": None,
    "top_p": None,
    "top_k": None,
    "min_p": None,
}
_SEND_LESS = "Send fewer pages (--max-k) or smaller ones (--send-megapixels)."


class LocalGenerator:
    """A checkpoint of a language model, loaded when first used. Threads that share it take turns.

    ``name`` is a model of the paper, also as NAME=FOLDER; the folder of a checkpoint; or a hub
    name. ``source`` is the location of the checkpoint, if it differs from the name; ``device`` is
    "auto", "cpu", "cuda" or "mps".

    Raises GeneratorUnavailable if packages are missing, and CheckpointError if the name is not a
    model of the paper, and the checkpoint is missing or not a chat model.
    """

    def __init__(
        self, name: str, source: str | Checkpoint | None = None, *, device: str = "auto"
    ) -> None:
        check_device(device)
        self.name = name
        known, _, folder = name.partition("=")
        self._published = PUBLISHED.get(known)
        self._source, self._revision = source or folder or name, None
        if self._published and self._source == known:
            self._source, self._revision = self._published.repository, self._published.revision
        self._device = device
        self._lock = threading.RLock()
        self._batches = Batches(_LARGEST_BATCH)
        self.reads: Reads = self._published.reads if self._published else reads_of(self._checkpoint)

    @property
    def model_class(self) -> str:
        """Model class that the configuration names."""
        return self._published.model_class if self._published else self._checkpoint.architectures[0]

    @property
    def identity(self) -> str:
        """Name of the checkpoint, with its commit at the hub or a hash of its folder."""
        return self._checkpoint.identity

    def fetch(self) -> None:
        """Download the checkpoint if it isn't on this machine."""
        with self._lock:
            self._checkpoint.folder()

    def release(self) -> None:
        """Free the memory of the weights; the next reply loads them again."""
        with self._lock:
            if vars(self).pop("_model", None) is not None:
                free_memory()

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, without loading the weights."""
        with self._lock:
            return len(tokenize(self._tokenizer, text))

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = ignore_text,
    ) -> Reply:
        """Write a reply; see `Generator.generate`.

        With ``choices``, ``max_tokens`` is ignored, and ``on_text`` is called once with the whole
        reply.
        """
        with self._lock, self._within_memory():
            (reply,) = self._replies([prompt], max_tokens, choices, on_text)
        if choices:
            on_text(reply.text)
        return reply

    def generate_batch(
        self, prompts: Sequence[Prompt], *, max_tokens: int, choices: Sequence[str] = ()
    ) -> list[Reply | Exception]:
        """Write replies to several prompts at a time; see `BatchGenerator.generate_batch`.

        The batch size is halved, permanently, when memory runs out. Prompts run one by one if the
        model samples, since a sample would depend on the batch, or if a batch fails.
        """

        def write(batch: Sequence[Prompt]) -> Sequence[Reply | Exception]:
            if len(batch) > 1 and not any(map(self._samples, batch)):
                try:
                    return self._replies(batch, max_tokens, choices)
                except Exception as error:
                    if is_out_of_memory(error):
                        raise
                    _logger.info("%s failed on a batch of %d: %s", self.name, len(batch), error)
            return generate_in_turn(self, batch, max_tokens=max_tokens, choices=choices)

        with self._lock:
            return self._batches.run(prompts, write)

    def _replies(
        self,
        prompts: Sequence[Prompt],
        max_tokens: int,
        choices: Sequence[str],
        on_text: OnText | None = None,
    ) -> list[Reply]:
        """Write a reply to each prompt in one batch; ``on_text`` needs a single prompt."""
        if max_tokens < 1:
            raise InvalidOption(f"max_tokens must be at least 1, not {max_tokens}.")
        inputs = self._inputs(*prompts)
        held = ChoiceTokens(choices, self._tokenizer, self._ends[0]) if choices else None
        limit = held.longest if held else max_tokens
        self._check_context(inputs, limit)
        if held:
            written = self._write(inputs, limit, _constrain_to(held, inputs))
        else:
            streamer = on_text and _streamer(self._tokenizer, on_text)
            written = self._write(inputs, limit, self._decoding(prompts[0]), streamer)
        return [
            Reply(
                text=held.text_of(tokens) if held else _text_of(self._tokenizer, tokens),
                model=self.identity,
                input_tokens=int(given),
                output_tokens=len(tokens),
                complete=tokens[-1] in self._ends,
            )
            for tokens, given in zip(written, inputs["attention_mask"].sum(1), strict=True)
        ]

    def _inputs(self, *prompts: Prompt) -> Any:
        """Return the model's inputs on its device: a row for each prompt, padded on the left."""
        images = [
            [image if image.mode == "RGB" else image.convert("RGB") for image in prompt.images]
            for prompt in prompts
        ]
        if any(images) and self.reads == "text":
            raise GenerationError(f"{self.name} only reads text, but was given page images.")
        texts = [self._template.render(prompt) for prompt in prompts]
        options: dict[str, Any] = {"text": texts, "return_tensors": "pt"}
        tokenizer = self._tokenizer
        beginning = tokenizer.bos_token
        if self.reads == "text" or (beginning and texts[0].startswith(beginning)):
            options["add_special_tokens"] = False  # the template wrote them
        if len(prompts) > 1:
            options |= {"padding": True, "padding_side": "left"}
            if tokenizer.pad_token is None:
                tokenizer.pad_token = tokenizer.convert_ids_to_tokens(self._ends[0])
        if any(images):
            # The paper's program passes LLaVA-OneVision a flat list of pages, which are then tiled;
            # in a list per prompt, each page becomes one small image.
            is_flat = prompts[0].as_in_paper and self.model_class == _LLAVA
            options["images"] = [page for pages in images for page in pages] if is_flat else images
        try:
            batch = self._processor(**options)
        except ValueError as error:
            raise GenerationError(f"{self.name} can't read the prompt: {error}") from error
        if len(prompts) > 1:
            _pad_with_first(batch["input_ids"], batch["attention_mask"])
        placed = batch.to(self._model.device)
        for key, value in placed.items():
            if value.is_floating_point():
                placed[key] = value.to(self._model.dtype)
        return placed

    def _samples(self, prompt: Prompt) -> bool:
        """Return whether the model samples the tokens of its reply."""
        return not self._decoding(prompt) and bool(self._model.generation_config.do_sample)

    def _decoding(self, prompt: Prompt) -> dict[str, Any]:
        model = self._published
        if model is None:
            return _GREEDY
        decoding = (prompt.as_in_paper and model.paper_decoding) or model.decoding
        return _GREEDY if decoding == "greedy" else {}

    def _write(
        self, inputs: Any, limit: int, decoding: dict[str, Any], streamer: Any = None
    ) -> list[list[int]]:
        """Return the tokens of each reply. An exception in the streamer, or Ctrl-C, stops it."""
        import torch

        with contextlib.ExitStack() as around:
            around.enter_context(torch.inference_mode())
            if not decoding:
                around.enter_context(_SAMPLING_LOCK)
                devices = [self._model.device] if self._model.device.type == "cuda" else []
                around.enter_context(torch.random.fork_rng(devices))
                torch.manual_seed(_SEED)
            written = self._model.generate(
                **inputs,
                max_new_tokens=limit,
                streamer=streamer,
                eos_token_id=self._ends,
                pad_token_id=self._ends[0],
                **decoding,
            )
        replies = written[:, inputs["input_ids"].shape[1] :].tolist()
        # Replies that end before the longest one are padded.
        lengths = (
            next((n for n, token in enumerate(reply, 1) if token in self._ends), len(reply))
            for reply in replies
        )
        return [reply[:length] for reply, length in zip(replies, lengths, strict=True)]

    def _check_context(self, inputs: Any, limit: int) -> None:
        longest = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        given = inputs["input_ids"].shape[1]
        if longest is not None and given + limit > longest:
            error = PromptTooLong(
                f"The prompt has {given} tokens and the reply can have {limit}, but the context of "
                f"{self.name} has only {longest}. {_SEND_LESS}"
            )
            error.share = max(0, longest - limit) / given
            raise error

    @contextlib.contextmanager
    def _within_memory(self) -> Iterator[None]:
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise GenerationError(
                f"{self.name} ran out of memory on {choose_device(self._device)} with this prompt. "
                f"{_SEND_LESS}"
            ) from error

    @functools.cached_property
    def _checkpoint(self) -> Checkpoint:
        if missing := missing_packages():
            raise GeneratorUnavailable(
                f"The generator {self.name!r} needs {', '.join(missing)}: {INSTALL}"
            )
        found = find_checkpoint(self._source, self._revision)
        expected = self._published and self._published.model_class
        if expected and expected not in found.architectures:
            remedy = (
                "Use the name of its own model."
                if found.is_local
                else "The repository may have changed: name the revision you want."
            )
            raise CheckpointError(
                f"{found.name} is {', '.join(found.architectures)}, but {expected} was expected. "
                f"{remedy}"
            )
        return found

    @functools.cached_property
    def _processor(self) -> Any:
        """The processor, which makes the model's inputs; a tokenizer for a text model."""
        return self._load("AutoProcessor", "AutoTokenizer")

    @property
    def _tokenizer(self) -> Any:
        return getattr(self._processor, "tokenizer", self._processor)

    @functools.cached_property
    def _template(self) -> ChatTemplate:
        name, processor = self._checkpoint.name, self._processor
        with loading(self._checkpoint):
            return ChatTemplate(name, processor, with_images=self.reads == "images")

    @functools.cached_property
    def _model(self) -> Any:
        name = self._checkpoint.name
        try:
            device = choose_device(self._device)
        except EncoderUnavailable as error:
            raise GeneratorUnavailable(str(error)) from error
        try:
            model, report = self._load(
                "AutoModelForImageTextToText",
                "AutoModelForCausalLM",
                dtype=choose_dtype(device, self._published.half if self._published else "bfloat16"),
                attn_implementation=attention_for(device),
                use_safetensors=True,
                output_loading_info=True,
            )
            refuse_incomplete(self._checkpoint, model, report)
            return model.to(device).eval()
        except (MemoryError, RuntimeError, CheckpointError) as error:
            if not is_out_of_memory(error):
                raise
            raise GenerationError(
                f"{name} doesn't fit into the memory of {device}. Use a smaller model, another "
                "device, or a server that runs it."
            ) from error

    def _load(self, for_images: str, for_text: str, **options: Any) -> Any:
        """Load with the first class of transformers if the model reads images, else the second."""
        folder = self._checkpoint.folder()
        import_torchvision()  # transformers imports it too
        import transformers

        kind = getattr(transformers, for_images if self.reads == "images" else for_text)
        with loading(self._checkpoint):
            return kind.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, **options
            )

    @functools.cached_property
    def _ends(self) -> list[int]:
        """Tokens that end a reply: the template's first, then those of the configurations."""
        configured = self._model.generation_config.eos_token_id
        ends = configured if isinstance(configured, list) else [configured]
        template, tokenizer = self._template, self._tokenizer
        candidates = [template.end_of_turn(), *ends, tokenizer.eos_token_id]
        found = list(dict.fromkeys(token for token in candidates if token is not None))
        if not found:
            raise CheckpointError(f"{self._checkpoint.name} has no end-of-reply token.")
        return found


def _streamer(tokenizer: Any, listen: OnText, *, skip_prompt: bool = True) -> Any:
    """Return a transformers streamer that calls ``listen`` with each word as it is written."""
    from transformers import TextStreamer

    class Streamer(TextStreamer):
        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:  # noqa: ARG002
            if text:
                listen(text)

    return Streamer(
        tokenizer,
        skip_prompt=skip_prompt,
        skip_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def _text_of(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Return the text of a reply as a streamer shows it, which some tokenizers decode otherwise."""
    import torch

    pieces: list[str] = []
    streamer = _streamer(tokenizer, pieces.append, skip_prompt=False)
    for token in tokens:
        streamer.put(torch.tensor([token]))
    streamer.end()
    return "".join(pieces)


def _pad_with_first(tokens: Any, mask: Any) -> None:
    """Pad each prompt with its own first token.

    The model ignores padding, but repetition penalties don't: with a token that is in the prompt
    anyway, the reply is the same as without padding.
    """
    first = tokens.gather(1, mask.argmax(1, keepdim=True))
    tokens.copy_(tokens.where(mask.bool(), first))


def _constrain_to(choices: ChoiceTokens, inputs: Any) -> dict[str, Any]:
    given = inputs["input_ids"].shape[1]

    def allowed(_: int, tokens: Any) -> list[int]:
        return choices.allowed_after(tokens[given:].tolist())

    # A repetition penalty would favor choices that the prompt doesn't mention.
    return {**_GREEDY, "repetition_penalty": 1.0, "prefix_allowed_tokens_fn": allowed}


class ChoiceTokens:
    """The tokens of the replies ``{"choice": …}`` that constrained decoding allows.

    Raises InvalidOption if a choice contains ``end``, the token that ends a reply.
    """

    def __init__(self, choices: Sequence[str], tokenizer: Any, end: int) -> None:
        self._end = end
        self._texts: dict[tuple[int, ...], str] = {}
        self._following: dict[tuple[int, ...], list[int]] = {}
        for choice in choices:
            text = choice_text(choice)
            tokens = tuple(tokenize(tokenizer, text))
            if end in tokens:
                raise InvalidOption(f"The choice {choice!r} contains the end-of-reply token.")
            self._texts[tokens] = text
            for length, token in enumerate((*tokens, end)):
                allowed = self._following.setdefault(tokens[:length], [])
                if token not in allowed:
                    allowed.append(token)

    @property
    def longest(self) -> int:
        """Number of tokens of the longest reply, including the one that ends it."""
        return 1 + max(map(len, self._texts))

    def allowed_after(self, tokens: Iterable[int]) -> list[int]:
        """Return the tokens that may follow the beginning of a reply."""
        return self._following.get(tuple(tokens), [self._end])

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the reply that the tokens stand for, as JSON."""
        return self._texts[tuple(token for token in tokens if token != self._end)]


def reads_of(checkpoint: Checkpoint) -> Reads:
    """Return whether a checkpoint reads images or text, by its model class.

    Raises CheckpointError if it is an adapter, or not a language model that transformers supports.
    """
    import_torchvision()  # transformers imports it too
    from transformers.models.auto import modeling_auto

    if checkpoint.adapter is not None:
        raise CheckpointError(
            f"{checkpoint.name} is an adapter. Merge it into its base model, save that to a "
            "folder, and give the folder's path."
        )
    kinds: tuple[tuple[Reads, Mapping[str, Any]], ...] = (
        ("images", modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES),
        ("text", modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    )
    for reads, classes in kinds:
        if classes.get(checkpoint.model_type) in checkpoint.architectures:
            return reads
    kind = ", ".join(checkpoint.architectures) or f"of type {checkpoint.model_type!r}"
    raise CheckpointError(
        f"{checkpoint.name} is {kind}, which doesn't write text or isn't part of transformers. Use "
        "a chat model that transformers supports, such as Qwen/Qwen2.5-VL-7B-Instruct."
    )
