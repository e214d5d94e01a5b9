"""Why an answer isn't as with llama.cpp's server: what docs/serve.md says."""

REASONS = {
    "native":
        "`/completion`, `/infill` and `/embedding` are not there, and `/completions` is OpenAI's: `/v1/completions` (with `suffix`) "
        "and `/v1/embeddings` do the same, and every client knows them.",
    "rerank": "`/rerank` is not there: the engine loads no model for it.",
    "lora": "There are no LoRA adapters; `lora` is refused unless it is empty.",
    "slots":
        "Slots are not told apart: any request takes any, `id_slot` is ignored, and what `/slots/N?action=save` is for, the prefix "
        "cache does by itself, on disk too.",
    "load": "`/models/load` and `/models/unload` are not there: a model is loaded when it is asked for.",
    "any_model":
        "A model that isn't there is an error 404, unless `--any-model` says that every name means the model; where none is named, the "
        "default one answers.",
    "no_answer": "`max_tokens` is at least 1: an answer of no tokens is none.",
    "samplers": "The order of samplers (`samplers`) is fixed, and another one is refused.",
    "response_fields": "`response_fields` is ignored: an answer has all of its fields.",
    "kwargs":
        "`chat_template_kwargs` knows what turns reasoning on and off and bounds it; any other variable is refused, since no template "
        "is given it.",
    "assistants": "A history may end with two messages of the assistant: they are taken as they are.",
    "timings": "`timings` are told where `timings_per_token` asks for them.",
    "progress": "`return_progress` is ignored: while a long prompt is computed, a stream has an event that says nothing every 10 s.",
    "stream_options": "`stream_options` without `stream` is refused, as with OpenAI.",
    "images": "Images, sound and files are refused with 400, not 500: to send them again doesn't help.",
    "too_long":
        "A prompt that is too long is an error with OpenAI's code `context_length_exceeded`, which clients know; its `type` is "
        "`exceed_context_size_error` on routes without `/v1` only, and `n_prompt_tokens` and `n_ctx` are there on all.",
    "methods": "A path that is there with another method is 405, not 404 or 501.",
    "default_tokens": "`/v1/completions` without `max_tokens`, or with -1, ends after 16 tokens, as with OpenAI.",
    "prompts": "Several prompts are answered whole, not in a stream.",
    "mixed": "A prompt, and what embeddings are made of, is a text or tokens, as with OpenAI, not a list of both, and no object.",
    "empty_prompt": "An empty prompt is refused: not every model has a token that begins a text.",
    "n_probs": "`n_probs` and `post_sampling_probs` are ignored: OpenAI's `logprobs` tells the same.",
    "echo": "`echo` is honoured.",
    "suffix": "`suffix` is honoured by models that were trained for it.",
    "drafts": "Drafts come from the prompt and the answer; `speculative.*` is ignored, since they change no answer.",
    "shift": "The context is never shifted: an answer ends where it is full, and `n_keep` and `n_discard` are ignored.",
    "prompt_usage": "A stream of `/v1/messages` tells at its end what the prompt cost, where it is known.",
    "empty_messages": "A request without a message is refused: there is nothing to answer.",
    "kept_responses": "`/v1/responses` keeps answers, so that `previous_response_id` goes on with one.",
    "embeddings": "`/embeddings` answers as `/v1/embeddings` does; pooling is the model's.",
    "npcs": "`/models` has the NPCs of the team too: each is a model by its name.",
    "generation_prompt":
        "`add_generation_prompt: false` says that words of the assistant at the end are to be continued; where there are none, it "
        "leaves the assistant's turn where it is.",
    "model_path": "`/props` doesn't tell where the model's file lies.",
    "metrics": "`/metrics` needs no flag, and its names begin with `alara_`.",
    "missing": "`/tokenize` without `content` or `prompt` and `/detokenize` without `tokens` are refused, not answered with nothing.",
    "parts": "Parts of a message's text stand together as they are, without a line break between.",
    "public_models": "With a token, `/models` needs it too: the names of NPCs are nobody else's business.",
    "preflight": "What a browser asks first is answered with 204.",
    "origins": "Pages of other sites are refused unless `--origin` lets them in, and so is a name that was made to mean this machine.",
}
