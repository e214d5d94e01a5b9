"""Why an answer isn't as with llama.cpp's server: what docs/serve.md says."""

REASONS = {
    "native":
        "`/completion`, `/infill` and `/embedding` do not exist, and `/completions` is OpenAI's: `/v1/completions` (with `suffix`) and "
        "`/v1/embeddings` do the same, and every client knows them.",
    "rerank": "`/rerank` does not exist: the engine loads no model for it.",
    "lora": "There are no LoRA adapters; `lora` is refused unless it is empty.",
    "slots": "Slots are interchangeable and `id_slot` is ignored; the prefix cache replaces `/slots/N?action=save`, on disk too.",
    "load": "`/models/load` and `/models/unload` do not exist: the server loads a model when a request asks for it.",
    "any_model":
        "An unknown model is an error 404, unless `--any-model` makes every name mean the model; a request without a name goes to the "
        "default model.",
    "no_answer": "`max_tokens` is at least 1: an answer needs a token.",
    "samplers": "The order of samplers (`samplers`) is fixed, and another one is refused.",
    "response_fields": "`response_fields` is ignored: an answer has all of its fields.",
    "kwargs":
        "`chat_template_kwargs` accepts only the variables that turn reasoning on and off or limit it; any other is refused, since "
        "templates don't get it.",
    "assistants": "A history may end with two messages of the assistant: they are taken as they are.",
    "timings": "`timings` are sent only with `timings_per_token`.",
    "progress": "`return_progress` is ignored: while a long prompt is computed, a stream has an empty event every 10 s.",
    "stream_options": "`stream_options` without `stream` is refused, as with OpenAI.",
    "images": "Images, sound and files are refused with 400, not 500: sending them again doesn't help.",
    "too_long":
        "A prompt that is too long is an error with OpenAI's code `context_length_exceeded`, which clients know; its `type` is "
        "`exceed_context_size_error` only on routes without `/v1`, and all routes have `n_prompt_tokens` and `n_ctx`.",
    "methods": "A wrong method on an existing path is 405, not 404 or 501.",
    "default_tokens": "`/v1/completions` without `max_tokens`, or with -1, ends after 16 tokens, as with OpenAI.",
    "prompts": "Several prompts are answered whole, not in a stream.",
    "mixed": "A prompt, and the input of embeddings, is a text or tokens, as with OpenAI, not a list of both, and no object.",
    "empty_prompt": "An empty prompt is refused: not every model has a token that begins a text.",
    "n_probs": "`n_probs` and `post_sampling_probs` are ignored: use OpenAI's `logprobs`.",
    "echo": "`echo` is honoured.",
    "suffix": "`suffix` is honoured by models that were trained for it.",
    "drafts": "Drafts come from the prompt and the answer; `speculative.*` is ignored, since drafts change no answer.",
    "shift": "The context is never shifted: an answer ends when it is full, and `n_keep` and `n_discard` are ignored.",
    "prompt_usage": "A stream of `/v1/messages` reports the tokens of the prompt at its end, where they are known.",
    "empty_messages": "A request without a message is refused: there is nothing to answer.",
    "kept_responses": "`/v1/responses` keeps answers, so that `previous_response_id` can continue from one.",
    "embeddings": "`/embeddings` answers as `/v1/embeddings` does; pooling is the model's.",
    "npcs": "`/models` also lists the NPCs of the team: each is a model by its name.",
    "generation_prompt":
        "`add_generation_prompt: false` continues the assistant's text at the end; without such text, it leaves the assistant's turn "
        "where it is.",
    "model_path": "`/props` doesn't reveal the path of the model's file.",
    "metrics": "`/metrics` needs no flag, and its names begin with `alara_`.",
    "missing":
        "`/tokenize` without `content` or `prompt` and `/detokenize` without `tokens` are refused, not answered with an empty result.",
    "parts": "Text parts of a message are joined as they are, without a line break between.",
    "public_models": "With a token, `/models` needs it too, since the names of NPCs are private.",
    "preflight": "A browser's preflight request is answered with 204.",
    "origins": "Pages of other sites are refused unless `--origin` admits them, and so is a host name that someone points at this machine.",
}
