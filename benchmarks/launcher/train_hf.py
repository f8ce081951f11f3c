"""``transformers.Trainer`` on a tiny GPT-2, a step of 0.1 s: what costs a restart here are the imports.

Usage: train_hf.py CHECKPOINTS. Its journal is that of ``train.py``. It runs until it is ended.
"""

import sys
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from benchmarks.launcher import train

WORDS = 16
SAVE_STEPS = 20


class Sentences(torch.utils.data.Dataset):
    """Random words, without end."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(64, (WORDS,))
        return {"input_ids": words, "labels": words}


class Journal(TrainerCallback):
    """Tells of every step, which takes its time."""

    def on_step_end(self, _arguments: object, state: object, _control: object, **_named: object) -> None:
        """A step is done."""
        time.sleep(train.STEP_SECONDS)
        train.journal(state.global_step)


def main(folder: Path) -> None:
    """Train from the newest complete checkpoint on."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=1_000_000,
        per_device_train_batch_size=4,
        save_steps=SAVE_STEPS,
        save_total_limit=2,
        ignore_data_skip=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
    )
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=WORDS, n_embd=16, n_layer=1, n_head=2))
    trainer = Trainer(model=model, args=arguments, train_dataset=Sentences(), callbacks=[Journal()])
    complete = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    newest = max(complete, key=lambda path: int(path.name.removeprefix("checkpoint-")), default=None)
    trainer.train(resume_from_checkpoint=newest and str(newest))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
