"""Fine-tunes a tiny GPT-2 with `transformers.Trainer` and its adapter: one global batch for any number of workers."""

import argparse
import os

from slow_storage import Sentences
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from elastic_infra.training.hf import ElasticCallback, accumulation_steps, latest


def fit(model, dataset, folder, **options):
    """Train from the newest whole checkpoint on; save the model once training is over."""
    elastic = ElasticCallback()
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=accumulation_steps(global_batch=12, micro_batch=2),
        save_total_limit=2,
        **options,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=latest(folder))
    if elastic.finished:
        trainer.save_model(f"{folder}/final")
    return elastic.finished


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save-every", type=int, default=5, help="steps")
    options = parser.parse_args()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    is_first = os.environ.get("RANK", "0") == "0"
    last = latest(options.output)
    if is_first:
        print(f"resuming from {last}" if last else "starting afresh", flush=True)
    quiet = {"logging_steps": 20, "disable_tqdm": True, "report_to": "none", "dataloader_pin_memory": False}
    length = {"max_steps": options.steps, "save_steps": options.save_every, "use_cpu": True}
    if fit(model, Sentences(), options.output, **length, **quiet) and is_first:
        print(f"finished at step {options.steps}")


if __name__ == "__main__":
    main()
