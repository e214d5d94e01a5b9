//! Tokens of prompts and answers, with their probabilities; and that the texts of all tokens add
//! up.

use super::*;

/// Returns the ids of a text, requested as by vLLM's clients.
fn ids(text: &str) -> Vec<u64> {
    let told = post("/tokenize", json!({"model": MODEL, "prompt": text, "add_special_tokens": false}));
    assert_eq!(told["count"], told["tokens"].as_array().unwrap().len());
    serde_json::from_value(told["tokens"].clone()).unwrap()
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("{name} of {value}"))
}

fn joined(logprobs: &Value) -> String {
    list(logprobs, "tokens").iter().map(|token| token.as_str().unwrap()).collect()
}

/// Returns the chunks of a stream, without its last line.
fn chunks(path: &str, mut body: Value) -> Vec<Value> {
    body["stream"] = true.into();
    let (status, _, said) = ask("POST", path, "", &body.to_string());
    assert_eq!(status, 200, "{said}");
    let lines = said.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter(|line| *line != "[DONE]").map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the request of lm-evaluation-harness for the likelihood of texts.
fn likelihood(prompts: &[Vec<u64>]) -> Value {
    json!({
        "model": MODEL, "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234,
        "echo": true,
    })
}

#[test]
fn the_prompts_tokens_are_told_with_it() {
    let prompts = [ids("Read the file a.txt, then say what é is."), ids("one two")];
    let answer = post("/v1/completions", likelihood(&prompts));
    assert_eq!(list(&answer, "choices").len(), 2);
    for (choice, prompt) in list(&answer, "choices").iter().zip(&prompts) {
        let logprobs = &choice["logprobs"];
        // The additional one belongs to the answer.
        for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            assert_eq!(list(logprobs, name).len(), prompt.len() + 1, "{name} of {choice}");
        }
        assert_eq!(
            (&logprobs["token_logprobs"][0], &logprobs["top_logprobs"][0]),
            (&Value::Null, &Value::Null)
        );
        let text = choice["text"].as_str().unwrap();
        let offsets: Vec<u64> = list(logprobs, "text_offset").iter().map(|at| at.as_u64().unwrap()).collect();
        assert!(offsets.is_sorted() && offsets[0] == 0 && offsets[1] > 0, "{offsets:?}");
        assert!(*offsets.last().unwrap() as usize <= text.chars().count(), "{offsets:?} in {text:?}");
        for (told, top) in list(logprobs, "token_logprobs").iter().zip(list(logprobs, "top_logprobs")).skip(1)
        {
            let most = top.as_object().unwrap().values().map(|value| value.as_f64().unwrap());
            assert!(told.as_f64().unwrap() <= most.fold(f64::MIN, f64::max), "{told} {top}");
        }
    }
    // With several answers, each has them.
    let mut several = likelihood(&prompts[..1]);
    several["n"] = 3.into();
    let several = post("/v1/completions", several);
    assert_eq!(list(&several, "choices").len(), 3);
    for choice in list(&several, "choices") {
        let tokens =
            |choice: &Value| list(&choice["logprobs"], "token_logprobs")[..prompts[0].len()].to_vec();
        assert_eq!(tokens(choice), tokens(&answer["choices"][0]));
    }
}

#[test]
fn an_answer_is_as_likely_as_a_prompt_as_it_was_when_it_was_written() {
    let prompt = "user: say hello\nassistant:";
    let body = json!({"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 12, "logprobs": 2,
        "ignore_eos": true});
    let written = post("/v1/completions", body);
    let written = &written["choices"][0]["logprobs"];
    let generated: Vec<u64> =
        list(written, "tokens").iter().flat_map(|token| ids(token.as_str().unwrap())).collect();
    assert_eq!(generated.len(), 12, "each of these tokens is one by itself: {written}");
    let begun = ids(prompt);
    let mut body = likelihood(&[[begun.clone(), generated].concat()]);
    (body["max_tokens"], body["logprobs"]) = (0.into(), 2.into());
    let answer = post("/v1/completions", body);
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &answer["usage"]["completion_tokens"]),
        (&json!("length"), &json!(0))
    );
    for name in ["tokens", "token_logprobs", "top_logprobs"] {
        assert_eq!(list(&choice["logprobs"], name)[begun.len()..], *list(written, name), "{name}");
    }
    // The whole prompt is cached, and gives equal numbers.
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn streams_tell_the_same_tokens() {
    for (echo, most) in [(true, 6), (true, 0), (false, 6)] {
        let body = json!({"model": MODEL, "prompt": "The house is", "temperature": 0, "max_tokens": most, "echo": echo,
            "logprobs": 1, "n": 2, "seed": 3});
        let body = if most > 0 {
            body
        } else {
            json!({"model": MODEL, "prompt": "The house is", "max_tokens": 0,
            "echo": true, "logprobs": 1, "temperature": 0})
        };
        let whole = post("/v1/completions", body.clone());
        let streamed = chunks("/v1/completions", body);
        for (index, choice) in list(&whole, "choices").iter().enumerate() {
            let parts: Vec<&Value> = streamed
                .iter()
                .map(|chunk| &chunk["choices"][0])
                .filter(|part| part["index"] == index)
                .collect();
            let text: String = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
            assert_eq!(choice["text"], text);
            for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
                let told: Vec<Value> = parts
                    .iter()
                    .filter(|part| !part["logprobs"].is_null())
                    .flat_map(|part| list(&part["logprobs"], name).to_vec())
                    .collect();
                assert_eq!(choice["logprobs"][name], json!(told), "{name}");
            }
        }
    }
}

/// lm-evaluation-harness tokenizes by the vocabulary that it gets.
#[test]
fn a_vocabulary_is_told_to_clients_that_tokenize_by_it() {
    let info = get("/tokenizer_info");
    let eos = info["eos_token"].as_str().unwrap();
    assert_eq!(ids(eos).len(), 1);
    assert!(info["chat_template"].as_str().unwrap().contains("messages"), "{info}");
    assert_eq!(get(&format!("/tokenizer_info?model={MODEL}")), info);
    let text = "Hello, wörld\n  x";
    let told = post("/detokenize", json!({"model": MODEL, "tokens": ids(text)}));
    assert_eq!((&told["prompt"], &told["content"]), (&json!(text), &json!(text)));
    let told = post("/tokenize", json!({"prompt": text, "return_token_strs": true}));
    assert_eq!(list(&told, "token_strs").len(), list(&told, "tokens").len());
    assert!(told["max_model_len"].as_u64().unwrap() > 0);
    assert_eq!(ask("POST", "/tokenize", "", "{}").0, 400);
}

#[test]
fn texts_are_all_of_their_tokens() {
    let mut begin = 0;
    for seed in 0..12 {
        let body = json!({"model": MODEL, "prompt": "def f(x):\n    if x:\n", "temperature": 1.5, "max_tokens": 6,
            "seed": seed, "ignore_eos": true, "logprobs": 0});
        let whole = post("/v1/completions", body.clone());
        let choice = &whole["choices"][0];
        let text = choice["text"].as_str().unwrap();
        if !text.contains('\u{fffd}') && !joined(&choice["logprobs"]).contains('\u{fffd}') {
            assert_eq!(joined(&choice["logprobs"]), text);
        }
        let streamed: String = chunks("/v1/completions", body.clone())
            .iter()
            .map(|chunk| chunk["choices"][0]["text"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(streamed, text);
        let mut echoed = body.clone();
        echoed["echo"] = true.into();
        let echoed = post("/v1/completions", echoed);
        assert_eq!(echoed["choices"][0]["text"], format!("{}{text}", body["prompt"].as_str().unwrap()));
    }
    for prompt in ["def f(x):\n    if x:\n", "The house is", "1, 2, 3,"] {
        let greedy =
            json!({"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 6, "ignore_eos": true});
        let text = post("/v1/completions", greedy)["choices"][0]["text"].take();
        let options = json!({"temperature": 0, "num_predict": 6, "repeat_penalty": 1});
        let raw = json!({"model": MODEL, "prompt": prompt, "raw": true, "stream": false, "options": options});
        let raw = post("/api/generate", raw)["response"].take();
        begin += usize::from(text.as_str().unwrap().starts_with(char::is_whitespace));
        // The answer may end by itself.
        assert!(text.as_str().unwrap().starts_with(raw.as_str().unwrap()), "{raw} for {text}");
    }
    assert!(begin > 0, "none of these texts begins with white space");
    let grammar = "root ::= \"  \\n\" [a-z]+ \" \"";
    let said = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": MODEL, "messages": said, "grammar": grammar, "max_tokens": 9});
    let chat = post("/v1/chat/completions", body);
    let text = chat["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.starts_with("  \n") && text.trim_start().len() + 3 == text.len(), "{text:?}");
}

#[test]
fn probabilities_end_where_a_stop_text_cuts_the_answer() {
    let asked = |stop: &[String]| {
        json!({"model": MODEL, "prompt": "The house is", "temperature": 0, "max_tokens": 24, "ignore_eos": true,
            "logprobs": 1, "stop": stop})
    };
    let whole = post("/v1/completions", asked(&[]));
    let text = whole["choices"][0]["text"].as_str().unwrap();
    let tokens = list(&whole["choices"][0]["logprobs"], "tokens").len();
    let characters: Vec<char> = text.chars().collect();
    let mut cut = 0;
    for at in (1..characters.len().saturating_sub(6)).step_by(3) {
        let stop: String = characters[at..at + 5].iter().collect();
        let before = text.split(&stop).next().unwrap();
        let check = |text: &str, logprobs: &Value| {
            assert_eq!(text, before);
            let told = if logprobs.is_null() { String::new() } else { joined(logprobs) };
            // A token in which the text ends may extend beyond it.
            assert!(told.starts_with(text), "{told:?} for {text:?} before {stop:?}");
            let last =
                logprobs["tokens"].as_array().and_then(|tokens| tokens.last()?.as_str()).unwrap_or_default();
            assert!(told.len() - last.len() < text.len().max(1), "{told:?} for {text:?} before {stop:?}");
            cut_tokens(logprobs) < tokens
        };
        let choice = post("/v1/completions", asked(std::slice::from_ref(&stop)))["choices"][0].take();
        cut += usize::from(check(choice["text"].as_str().unwrap(), &choice["logprobs"]));
        let streamed = chunks("/v1/completions", asked(std::slice::from_ref(&stop)));
        let parts = || streamed.iter().map(|chunk| &chunk["choices"][0]);
        let text: String = parts().map(|part| part["text"].as_str().unwrap()).collect();
        let tokens: Vec<Value> = parts()
            .filter(|part| !part["logprobs"].is_null())
            .flat_map(|part| list(&part["logprobs"], "tokens").to_vec())
            .collect();
        check(&text, &json!({"tokens": tokens}));
    }
    assert!(cut > 0);
    let said = json!([{"role": "user", "content": "Write the word hello."}]);
    let body =
        json!({"model": MODEL, "messages": said, "temperature": 0, "max_tokens": 20, "logprobs": true});
    let whole = post("/v1/chat/completions", body.clone());
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    let stop: String = text.chars().skip(2).take(4).collect();
    let mut body = body;
    body["stop"] = json!([stop]);
    let cut = post("/v1/chat/completions", body);
    let choice = &cut["choices"][0];
    let content = choice["logprobs"]["content"].as_array();
    let tokens: Vec<&str> =
        content.into_iter().flatten().map(|token| token["token"].as_str().unwrap()).collect();
    let said = choice["message"]["content"].as_str().unwrap();
    // The token in which the text ends may extend beyond it.
    let before: usize = tokens.iter().rev().skip(1).map(|token| token.len()).sum();
    assert!(
        tokens.concat().starts_with(said) && before < said.len().max(1),
        "{tokens:?} for {said:?} before {stop:?}"
    );
}

fn cut_tokens(logprobs: &Value) -> usize {
    logprobs["tokens"].as_array().map_or(0, Vec::len)
}
