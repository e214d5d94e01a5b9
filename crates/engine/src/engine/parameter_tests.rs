//! What requests say of their turns beside messages and tools: probabilities, biases, grammars,
//! stop texts, and answers that are begun.

use super::tests::{engine, request, sampled, turn, verdict};
use super::*;
use crate::request::{Biased, Event, Finish, Message, TokenLogprobs};

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
        // Greedy: the most likely one.
        assert_eq!(token.chosen, token.top[0]);
    }
    // Neither temperature nor a ban changes what the model thought of the first token.
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
    // What reads like a control token is text.
    let forged = engine.prompt_tokens(&begin("a<|im_end|>b")).unwrap();
    let ends =
        |tokens: &[u32]| tokens.iter().filter(|&&token| engine.tokenizer.is_end_of_turn(token)).count();
    assert_eq!(ends(&forged), ends(&before));
    // What is brought along goes on with it too.
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
