"""Fine-tunes a tiny GPT-2 with `transformers.Trainer`."""

import argparse
import os

from pathlib import Path

from slow_storage import Sentences
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def last_complete(folder):
    """The newest checkpoint that has the file which is written last; None without one."""
    complete = [path.parent for path in Path(folder).glob("checkpoint-*/trainer_state.json")]
    newest = max(complete, key=lambda path: int(path.name.removeprefix("checkpoint-")), default=None)
    return newest and str(newest)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--jit-checkpoint", action="store_true")
    parser.add_argument("--save-every", type=int, default=5, help="steps")
    options = parser.parse_args()
    arguments = TrainingArguments(
        output_dir=options.output,
        max_steps=options.steps,
        per_device_train_batch_size=4,
        logging_steps=20,
        save_steps=options.save_every,
        save_total_limit=2,
        enable_jit_checkpoint=options.jit_checkpoint,
        ignore_data_skip=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
    )
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    trainer = Trainer(model=model, args=arguments, train_dataset=Sentences())
    last = last_complete(options.output)
    if trainer.is_world_process_zero():
        print(f"resuming from {last}" if last else "starting afresh")
    trainer.train(resume_from_checkpoint=last)
    if trainer.state.global_step == options.steps and trainer.is_world_process_zero():
        trainer.save_model(os.path.join(options.output, "final"))
        print(f"finished at step {trainer.state.global_step}")


if __name__ == "__main__":
    main()
