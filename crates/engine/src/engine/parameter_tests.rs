//! Tests request parameters other than messages and tools: probabilities, biases, grammars, stop
//! texts, and continued answers.

use std::path::Path;

use alara_text::request::{Biased, Event, Finish, Message, TokenLogprobs};

use super::tests::{engine, request, sampled, turn, verdict};
use super::*;

fn logprobs(engine: &Engine, request: &Request) -> Vec<TokenLogprobs> {
    let events = engine.generate(request).unwrap().map(Result::unwrap);
    let tokens = events.filter_map(|event| match event {
        Event::Logprobs { tokens } => Some(tokens),
        _ => None,
    });
    tokens.flatten().collect()
}

#[test]
fn probabilities_change_nothing_and_are_the_models_own() {
    let engine = engine(256, 1);
    let plain = request("tell me about the house", 12);
    let asked = Request { logprobs: Some(3), ..plain.clone() };
    assert_eq!(turn(&engine, &asked).text, turn(&engine, &plain).text);
    let tokens = logprobs(&engine, &asked);
    assert!(tokens.len() > 6, "{tokens:?}");
    for token in &tokens {
        let likely: f32 = token.top.iter().map(|top| top.logprob.exp()).sum();
        assert!(token.top.len() == 3 && likely > 0.0 && likely < 1.0 + 1e-5, "{token:?}");
        assert!(token.top.is_sorted_by(|a, b| a.logprob >= b.logprob), "{token:?}");
        // Greedy sampling takes the most likely token.
        assert_eq!(token.chosen, token.top[0]);
    }
    // Neither temperature nor a ban changes the model's probability of the first token.
    let first = tokens[0].chosen.token;
    let mut banned = Request { logprobs: Some(3), ..sampled("tell me about the house", 5) };
    banned.sampling.logit_bias = vec![(Biased::Token(first), -100.0)];
    let others = logprobs(&engine, &banned);
    assert_eq!(others[0].top, tokens[0].top);
    assert!(others.iter().all(|token| token.chosen.token != first));
    let none = Request { logprobs: Some(0), ..plain };
    assert!(logprobs(&engine, &none).iter().all(|token| token.top.is_empty() && token.chosen.logprob < 0.0));
}

#[test]
fn a_biased_text_is_each_of_its_tokens() {
    let engine = engine(256, 1);
    let mut asked = request("tell me", 5);
    asked.sampling.logit_bias = vec![(Biased::Text("house".into()), 1000.0)];
    let tokens = engine.tokenizer.encode_within("house").unwrap();
    let answer = logprobs(&engine, &Request { logprobs: Some(0), ..asked });
    assert!(
        !answer.is_empty() && answer.iter().all(|token| tokens.contains(&token.chosen.token)),
        "{answer:?}"
    );
}

#[test]
fn choices_of_one_prompt_differ_and_share_it() {
    let engine = engine(256, 1);
    let asked = sampled("the house in the forest", 7);
    let choice =
        |index| turn(&engine, &Request { sampling: asked.sampling.for_choice(index), ..asked.clone() });
    let choices = [0, 1, 2].map(choice);
    assert_eq!(choices[0].text, turn(&engine, &asked).text);
    assert!(choices[0].text != choices[1].text && choices[1].text != choices[2].text);
    let usage = &choices[1].usage;
    assert_eq!(usage.cached_tokens, usage.prompt_tokens - 1);
}

#[test]
fn a_grammar_shapes_the_answer() {
    let engine = engine(256, 1);
    let grammars = ["root ::= (\"ab\" | \"ba\"){3}", "start: /(ab|ba){3}/"];
    for (at, grammar) in grammars.iter().cycle().take(8).enumerate() {
        let asked = Request { grammar: Some((*grammar).into()), ..sampled("which", at as u64) };
        let answer = turn(&engine, &asked);
        let pairs: Vec<&str> = (0..3).map(|at| answer.text.get(2 * at..2 * at + 2).unwrap_or("")).collect();
        assert!(pairs.iter().all(|pair| ["ab", "ba"].contains(pair)), "{}", answer.text);
        assert_eq!((answer.text.len(), answer.finish), (6, Finish::Stop));

        let begun = Request {
            messages: vec![Message::user("which"), Message::assistant("abb", Vec::new())],
            continue_final_message: true,
            ..asked
        };
        let rest = turn(&engine, &begun).text;
        assert!(["aab", "aba"].contains(&rest.as_str()), "{rest}");
        let mut other = begun.clone();
        other.messages[1].content = "bb".into();
        let refusal = engine.generate(&other).err().unwrap().to_string();
        assert!(
            refusal.contains("can't begin an answer with these tools, this schema or this grammar"),
            "{refusal}"
        );
    }
    let refused = |request: Request, expected: &str| {
        let refusal = engine.generate(&request).err().unwrap().to_string();
        assert!(refusal.contains(expected), "{refusal}");
    };
    let asked = |grammar: &str| Request { grammar: Some(grammar.into()), ..request("which", 4) };
    refused(asked("root ::= a"), "the grammar can't be used: there is no rule `a`");
    refused(asked("start: a"), "the grammar can't be used: ");
    refused(Request { schema: Some(verdict()), ..asked("start: /a/") }, "give one of them");
    refused(Request { ignore_eos: true, ..asked("start: /a/") }, "ignore_eos");
}

#[test]
fn a_stop_text_ends_a_schemas_answer_early() {
    let engine = engine(512, 1);
    let asked = Request { schema: Some(verdict()), max_tokens: Some(60), ..sampled("which", 1) };
    let whole = turn(&engine, &asked);
    assert_eq!(whole.usage.stop_text, None);
    let cut = turn(&engine, &Request { stop: vec!["\"sure".into()], ..asked });
    assert_eq!((cut.finish, cut.usage.stop_text.as_deref()), (Finish::Stop, Some("\"sure")));
    assert_eq!(cut.text, whole.text[..whole.text.find("\"sure").unwrap()]);
}

#[test]
fn a_begun_answer_is_gone_on_with() {
    let engine = engine(256, 1);
    let asked = request("tell me", 8);
    let begin = |content: &str| {
        let mut begun = Request { continue_final_message: true, ..asked.clone() };
        begun.messages.push(Message::assistant(content, Vec::new()));
        begun
    };
    let before = engine.prompt_tokens(&asked).unwrap();
    let tokens = engine.prompt_tokens(&begin("The house \n")).unwrap();
    assert_eq!(tokens, [before.as_slice(), &engine.tokenizer.encode_within("The house").unwrap()].concat());
    let answer = turn(&engine, &begin("The house"));
    assert!(!answer.text.contains("The house") && answer.usage.prompt_tokens == tokens.len());
    // Text that reads like a control token stays text.
    let forged = engine.prompt_tokens(&begin("a<|im_end|>b")).unwrap();
    let ends =
        |tokens: &[u32]| tokens.iter().filter(|&&token| engine.tokenizer.is_end_of_turn(token)).count();
    assert_eq!(ends(&forged), ends(&before));
    // A given answer continues it too.
    let brought = Request { answer: Some(Message::assistant(" is old", Vec::new())), ..begin("The house") };
    assert_eq!(turn(&engine, &brought).text, " is old");

    let check = |request: Request| {
        let refusal = engine.generate(&request).err().unwrap().to_string();
        assert!(refusal.contains("a last message of the assistant"), "{refusal}");
    };
    check(begin(" "));
    check(Request { continue_final_message: true, ..asked.clone() });
    check(Request { continue_final_message: true, messages: Vec::new(), ..asked.clone() });
}

/// The reported tokens of the prompt.
fn of_prompt(engine: &Engine, request: &Request) -> Vec<TokenLogprobs> {
    let events = engine.generate(request).unwrap().map(Result::unwrap);
    let told: Vec<_> = events
        .filter_map(|event| match event {
            Event::PromptLogprobs { tokens } => Some(tokens),
            _ => None,
        })
        .collect();
    assert_eq!(told.len(), 1);
    told.concat()
}

fn raw(ids: &[u32], top: usize, max_tokens: usize) -> Request {
    Request {
        prompt_ids: Some(ids.to_vec()),
        prompt_logprobs: Some(top),
        logprobs: Some(top),
        max_tokens: Some(max_tokens),
        ..Request::default()
    }
}

#[test]
fn a_raw_answer_is_all_that_its_tokens_decode_to() {
    let engine = engine(256, 1);
    let mut blanks = 0;
    for seed in 0..60 {
        let prompt = "def f(x):\n    if x:\n";
        let asked = Request {
            prompt: Some(prompt.into()),
            messages: Vec::new(),
            logprobs: Some(0),
            ..sampled("", seed)
        };
        let answer = turn(&engine, &asked);
        let ids: Vec<u32> = logprobs(&engine, &asked).iter().map(|token| token.chosen.token).collect();
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| engine.tokenizer.token_bytes(id).to_vec()).collect();
        let said = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(answer.text, said, "{ids:?}");
        blanks += usize::from(said.starts_with(char::is_whitespace));
    }
    assert!(blanks > 0, "none of these answers begins with a blank");
}

#[test]
fn probabilities_of_a_prompt_are_those_of_the_model_whatever_is_cached() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch/qwen3-exact");
    let reference: serde_json::Value =
        serde_json::from_slice(&std::fs::read(file.join("reference.json")).unwrap()).unwrap();
    let ids: Vec<u32> = serde_json::from_value(reference["tokens"].clone()).unwrap();
    let logits: Vec<f32> = std::fs::read(file.join("logits.f32"))
        .unwrap()
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let size = logits.len() / ids.len();
    let engine = engine(256, 2);
    let check = |told: &[TokenLogprobs]| {
        assert_eq!(told.len(), ids.len());
        assert_eq!((told[0].chosen.token, told[0].top.len()), (ids[0], 0));
        for (at, token) in told.iter().enumerate().skip(1) {
            let row = &logits[(at - 1) * size..at * size];
            let total = row.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln();
            let of = |id: u32| (f64::from(row[id as usize]) - total) as f32;
            assert_eq!(token.chosen.token, ids[at]);
            assert!((token.chosen.logprob - of(ids[at])).abs() < 2e-3, "{at}: {token:?}, {}", of(ids[at]));
            let most = row.iter().copied().fold(f32::MIN, f32::max) - total as f32;
            assert!((token.top[0].logprob - most).abs() < 2e-3 && token.top.len() == 2, "{at}: {token:?}");
        }
    };
    let first = of_prompt(&engine, &raw(&ids, 2, 0));
    check(&first);
    // The whole prompt is cached now, but is recomputed for the report.
    let again = turn(&engine, &raw(&ids, 2, 1));
    assert_eq!((again.usage.cached_tokens, again.usage.completion_tokens), (0, 1));
    assert_eq!(of_prompt(&engine, &raw(&ids, 2, 1)), first);
    let plain = Request { prompt_logprobs: None, ..raw(&ids, 2, 1) };
    assert_eq!(turn(&engine, &plain).usage.cached_tokens, ids.len() - 1);
    // Several at once, while another sequence decodes.
    let running = [raw(&ids, 2, 0), sampled("the house", 3), raw(&ids, 2, 0)].map(|asked| {
        let events = engine.generate(&asked).unwrap();
        (asked.prompt_ids.is_some(), events)
    });
    for (notes, events) in running {
        let told: Vec<_> = events
            .filter_map(|event| match event.unwrap() {
                Event::PromptLogprobs { tokens } => Some(tokens),
                _ => None,
            })
            .collect();
        assert_eq!(told, if notes { vec![first.clone()] } else { Vec::new() });
    }
}

#[test]
fn nothing_is_generated_where_the_prompt_alone_is_asked_for() {
    let engine = engine(256, 1);
    let ids = engine.tokenizer.encode_within("the house in the forest").unwrap();
    let answer = turn(&engine, &raw(&ids, 0, 0));
    assert_eq!((answer.text.as_str(), answer.finish), ("", Finish::Length));
    assert_eq!((answer.usage.prompt_tokens, answer.usage.completion_tokens), (ids.len(), 0));
    // One more token is reported, even if it ends the turn or is part of a character.
    for seed in 0..40 {
        let mut asked = raw(&ids, 1, 1);
        asked.sampling = sampled("", seed).sampling;
        assert_eq!(logprobs(&engine, &asked).len(), 1, "with seed {seed}");
    }
    assert_eq!(of_prompt(&engine, &raw(&ids[..1], 3, 0)).len(), 1);
    let beyond = engine.generate(&raw(&[u32::MAX], 0, 0)).err().unwrap().to_string();
    assert!(beyond.contains("4294967295"), "{beyond}");
}
