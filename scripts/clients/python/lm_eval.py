# lm-evaluation-harness, with tasks of its own kinds: choices by log-likelihood, words, perplexity.
# needs: lm-eval[api]==0.4.13
import json
import math
import pathlib

import lm_eval
from cases import MODEL, REAL, V1, case, run

ITEMS = [
    ("The capital of France is", [" Paris", " seven"]),
    ("One, two, three, four,", [" five", " table"]),
    ("The opposite of hot is", [" cold", " Monday"]),
    ("Roses are red, violets are", [" blue", " of"]),
]
pathlib.Path("items.jsonl").write_text("".join(json.dumps({"text": text, "choices": choices}) + "\n" for text, choices in ITEMS))
COMMON = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(pathlib.Path("items.jsonl").resolve())}},
          "test_split": "test", "doc_to_text": "{{text}}"}
CHOICES = {**COMMON, "task": "choices", "output_type": "multiple_choice", "doc_to_choice": "{{choices}}", "doc_to_target": 0,
           "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]}
WORDS = {**COMMON, "task": "words", "output_type": "generate_until", "doc_to_target": "{{choices[0]}}",
         "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8}, "metric_list": [{"metric": "exact_match"}]}
TEXTS = {**COMMON, "task": "texts", "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
         "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}]}


def measures(task, route="completions", **more):
    """The metrics of a task."""
    arguments = {"model": MODEL, "base_url": f"{V1}/{route}", "num_concurrent": 2, "max_retries": 1, "timeout": 120}
    way = "local-chat-completions" if route == "chat/completions" else "local-completions"
    if way == "local-completions":
        # The server's own tokenizer, special tokens and template: nothing is fetched from a hub.
        arguments["tokenizer_backend"] = "remote"
    outcome = lm_eval.simple_evaluate(model=way, model_args=arguments, tasks=[task], bootstrap_iters=0, **more)
    assert len(outcome["samples"][task["task"]]) == len(ITEMS)
    return {name.partition(",")[0]: value for name, value in outcome["results"][task["task"]].items()}


@case
def choices():
    found = measures(CHOICES)
    assert 0 <= found["acc"] <= 1 and 0 <= found["acc_norm"] <= 1, found
    if REAL:
        assert found["acc"] == 1, found


@case
def perplexity():
    found = measures(TEXTS)
    assert math.isfinite(found["word_perplexity"]) and found["bits_per_byte"] > 0, found


@case
def words():
    assert 0 <= measures(WORDS)["exact_match"] <= 1


@case(fault=("/tokenize failed", "with a remote tokenizer it has a list of messages tokenized, as no server does"))
def words_with_template():
    assert 0 <= measures(WORDS, apply_chat_template=True)["exact_match"] <= 1


@case
def chat_words():
    assert 0 <= measures(WORDS, "chat/completions", apply_chat_template=True)["exact_match"] <= 1


run()
