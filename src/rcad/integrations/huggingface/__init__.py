"""Hugging Face: a Trainer whose training loss is a method's, for texts (at their embeddings) and images (at pixels)."""

from rcad.errors import MissingExtraError

try:
    import accelerate as accelerate
    import transformers as transformers
except ModuleNotFoundError:
    raise MissingExtraError("transformers with accelerate", "hf") from None

from rcad.integrations.huggingface.trainer import RCADTrainer, RCADTrainerMixin

__all__ = ["RCADTrainer", "RCADTrainerMixin"]
