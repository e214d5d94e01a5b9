//! The cost of constrained turns, and that the fast paths agree with the slow ones.

use std::path::Path;

use super::*;
use crate::tools;

impl Vocabulary {
    /// The vocabulary of a tokenizer, with the markers that it has.
    pub(super) fn of_tokenizer(tokenizer: &Tokenizer) -> (Vocabulary, impl Fn(&str) -> Option<u32>) {
        (Vocabulary::of(Kind::Text, tokenizer.env()), |text: &str| tokenizer.id(text))
    }
}

/// The tokenizer of the model that ships, and those in the shared folder.
fn tokenizers() -> Vec<(&'static str, Tokenizer)> {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/alara-tiny.gguf");
    let shipped = Tokenizer::from_gguf(&Gguf::open(&shipped).unwrap()).unwrap();
    let shared = ["qwen2", "llama-bpe", "llama-spm", "gpt-2"];
    let shared = shared.into_iter().filter_map(|name| Some((name, shared_vocabulary(name)?)));
    [("alara-tiny", shipped)].into_iter().chain(shared).collect()
}

/// Follows a turn of random tokens and calls `look` before each.
fn walk(start: Constraint, seed: u64, most: usize, look: &mut dyn FnMut(&mut Constraint)) {
    let mut constraint = start;
    let size = constraint.trie().vocab_size();
    let mut sampler = Sampler::new(&Sampling { temperature: 1.0, seed, ..Sampling::default() });
    for step in 0..most {
        for token in constraint.forced().unwrap() {
            constraint.accept(token).unwrap();
        }
        if constraint.finished() {
            return;
        }
        look(&mut constraint);
        let mut logits: Vec<f32> = (0..size).map(|token| (token * (step + 3) % 11) as f32 / 2.0).collect();
        let token = constraint.sample(&mut sampler, &mut logits, &[]).unwrap().unwrap();
        constraint.accept(token).unwrap();
    }
}

#[test]
fn a_question_about_one_token_is_answered_as_the_mask_would() {
    for kind in [Kind::Control, Kind::UserDefined, Kind::Text] {
        let vocabulary = Vocabulary::get(kind);
        for (choice, seed) in [ToolChoice::Auto, ToolChoice::Required, ToolChoice::None]
            .iter()
            .flat_map(|choice| (0..8).map(move |seed| (choice, seed)))
        {
            let reasoning = [Reasoning::Optional, Reasoning::Never][seed as usize % 2];
            let turn = Turn { reasoning, parallel_tool_calls: true, ..turn(choice.clone()) };
            let mut looks = 0;
            walk(vocabulary.constraint(&turn).unwrap().unwrap(), seed, 60, &mut |constraint| {
                let size = vocabulary.size() as u32;
                let one: Vec<bool> =
                    (0..size + 3).map(|token| constraint.allows_all(&[token]).unwrap()).collect();
                let mut logits = vec![0.0; one.len()];
                constraint.mask(&mut logits).unwrap();
                let masked: Vec<bool> = logits.iter().map(|logit| *logit == 0.0).collect();
                for (token, (one, masked)) in one.into_iter().zip(masked).enumerate() {
                    assert_eq!(one, masked, "{kind:?} {choice:?}: token {token} after {looks} steps");
                }
                looks += 1;
            });
            assert!(looks > 0, "{kind:?} {choice:?}");
        }
    }
}

#[test]
fn so_it_is_with_real_vocabularies() {
    for (name, tokenizer) in tokenizers() {
        let (vocabulary, token) = Vocabulary::of_tokenizer(&tokenizer);
        let turn = Turn { tools: tools::tools(40), ..turn(ToolChoice::Auto) };
        let start = vocabulary.grammar.constraint(&turn, &token, &Until::default()).unwrap().unwrap();
        let (mut looks, mut differ) = (0, Vec::new());
        walk(start, 5, 60, &mut |constraint| {
            looks += 1;
            let mut logits = vec![0.0; vocabulary.size()];
            constraint.mask(&mut logits).unwrap();
            // Check every token if few are allowed, otherwise a sample.
            let few = logits.iter().filter(|logit| **logit == 0.0).count() < 300;
            for (token, logit) in (0..).zip(&logits) {
                if (few && *logit == 0.0) || token % 61 == looks % 61 {
                    let one = constraint.allows_all(&[token]).unwrap();
                    if one != (*logit == 0.0) {
                        differ.push((looks, token, tokenizer.token_text(token), one));
                    }
                }
            }
        });
        assert!(differ.is_empty(), "{name}: {differ:?}");
        assert!(looks > 5, "{name}: only {looks}");
    }
}

/// A turn of three calls, as a model that only knows its tokenizer would write it.
fn transcript(turn: &Turn) -> String {
    let arguments = [
        json!({"city": "Zürich 日本", "unit": "celsius", "days": 12}),
        json!({"when": {"start": 20261224}, "tags": [true, {"start": -5}, false]}),
        json!({}),
    ];
    let names = ["get_weather", "create_event", "ping"];
    let calls = names.into_iter().zip(arguments).map(|(name, arguments)| {
        let arguments = arguments.as_object().cloned().unwrap();
        turn.format.render_call(&ToolCall { id: String::new(), name: name.into(), arguments }).unwrap()
    });
    calls.collect::<Vec<_>>().join("\n")
}

#[test]
fn forced_tokens_are_those_of_the_tokenizer() {
    for (name, tokenizer) in tokenizers() {
        let (vocabulary, token) = Vocabulary::of_tokenizer(&tokenizer);
        let turn = Turn { parallel_tool_calls: true, ..turn(ToolChoice::Required) };
        let text = transcript(&turn);
        let canonical = tokenizer.encode_within(&text).unwrap();
        let mut constraint =
            vocabulary.grammar.constraint(&turn, &token, &Until::default()).unwrap().unwrap();
        let (mut at, mut stretches) = (0, 0);
        while at < canonical.len() {
            let forced = constraint.forced().unwrap();
            let show = |tokens: &[u32]| tokenizer.decode(tokens, true);
            assert!(
                canonical[at..].starts_with(&forced),
                "{name}: {:?} is forced as {:?} where the tokenizer has {:?}",
                show(&forced),
                forced.iter().map(|&token| show(&[token])).collect::<Vec<_>>(),
                canonical[at..].iter().take(forced.len()).map(|&token| show(&[token])).collect::<Vec<_>>(),
            );
            stretches += usize::from(!forced.is_empty());
            let drawn = canonical.get(at + forced.len()).filter(|_| forced.is_empty());
            for &token in forced.iter().chain(drawn) {
                assert!(
                    constraint.allows(token).unwrap(),
                    "{name}: {:?} behind {:?}",
                    show(&[token]),
                    show(&canonical[..at])
                );
                constraint.accept(token).unwrap();
                at += 1;
            }
        }
        let forced = constraint.usage().forced_tokens;
        println!("{name}: {forced} of {} tokens in {stretches} stretches", canonical.len());
        assert!(forced * 3 > canonical.len() && stretches > 5, "{name}");
    }
}

#[test]
fn a_tool_set_is_compiled_once() {
    let vocabulary = Vocabulary::get(Kind::Control);
    let grammar = Grammar::new(|| Vocabulary::get(Kind::Control).env.clone());
    let compiled = |turn: &Turn| {
        grammar
            .constraint(turn, &|text| vocabulary.token(text), &Until::default())
            .unwrap()
            .unwrap()
            .usage()
            .compiled
    };
    assert_eq!([compiled(&turn(ToolChoice::Auto)), compiled(&turn(ToolChoice::Auto))], [1, 0]);
    assert_eq!([compiled(&turn(ToolChoice::Required)), compiled(&turn(ToolChoice::Auto))], [1, 0]);
    // The order of keys is part of the grammar.
    let mut swapped = turn(ToolChoice::Auto);
    let properties = swapped.tools[1].parameters["properties"].as_object_mut().unwrap();
    let first = properties.shift_remove("city").unwrap();
    properties.insert("city".into(), first);
    assert_eq!(swapped, turn(ToolChoice::Auto));
    assert_eq!([compiled(&swapped), compiled(&swapped)], [1, 0]);
}

#[test]
fn a_kept_grammar_says_what_a_new_one_does() {
    let vocabulary = Vocabulary::get(Kind::Control);
    for choice in [ToolChoice::Auto, ToolChoice::Required] {
        let turn = Turn { parallel_tool_calls: true, ..turn(choice) };
        for seed in 0..20 {
            let fresh = Vocabulary::of(Kind::Control, vocabulary.env.clone());
            assert_eq!(vocabulary.generate(&turn, seed, 300), fresh.generate(&turn, seed, 300));
        }
    }
}

/// Times of one turn with `count` tools, in the order of its tokens: the cost per token for
/// well-chosen tokens.
fn times(tokenizer: &Tokenizer, vocabulary: &Vocabulary, count: usize) -> Vec<Duration> {
    let turn = Turn { tools: tools::tools(count), ..turn(ToolChoice::Auto) };
    let token = |text: &str| tokenizer.id(text);
    drop(vocabulary.grammar.constraint(&turn, &token, &Until::default()).unwrap());
    let mut constraint = vocabulary.grammar.constraint(&turn, &token, &Until::default()).unwrap().unwrap();
    assert_eq!(constraint.usage().compiled, 0);
    let text = "I will list the files that are there and tell you what I find in them.\n<tool_call>\n\
        {\"name\": \"list_file\", \"arguments\": {\"order\": \"newest\", \"tags\": [\"one\", \"two words here\", \"a third\"]}}\n</tool_call>";
    let canonical = tokenizer.encode_within(text).unwrap();
    let mut at = 0;
    let mut times = Vec::new();
    while at < canonical.len() {
        let before = constraint.usage().step_time;
        let forced = constraint.forced().unwrap();
        let next = if forced.is_empty() { vec![canonical[at]] } else { forced };
        if next.len() == 1 {
            assert!(constraint.allows(next[0]).unwrap(), "{:?}", tokenizer.decode(&canonical[..=at], true));
        }
        for &token in &next {
            constraint.accept(token).unwrap();
        }
        at += next.len();
        let each = (constraint.usage().step_time - before) / next.len() as u32;
        times.extend(next.iter().map(|_| each));
    }
    times
}

#[test]
fn hundreds_of_tools_cost_a_token_no_more_than_three() {
    let Some(tokenizer) = shared_vocabulary("qwen2") else { return };
    let vocabulary = Vocabulary::of(Kind::Text, tokenizer.env());
    let mut medians = Vec::new();
    for count in [3, 263] {
        let mut times = times(&tokenizer, &vocabulary, count);
        let mean = times.iter().sum::<Duration>() / times.len() as u32;
        let worst = *times.iter().max().unwrap();
        times.sort();
        let median = times[times.len() / 2];
        println!("{count} tools: {} tokens, mean {mean:?}, median {median:?}, worst {worst:?}", times.len());
        medians.push(median);
    }
    // Generous, since other tests run at the same time.
    assert!(medians[1] < medians[0] * 4 + Duration::from_micros(50), "{medians:?}");
}

/// Mean time that the grammar takes per token of free text with these options.
fn time_of_text(vocabulary: &Vocabulary, tokenizer: &Tokenizer, options: &Sampling) -> Duration {
    let turn = Turn { tools: tools::tools(263), ..turn(ToolChoice::Auto) };
    let start = || {
        vocabulary.grammar.constraint(&turn, &|text| tokenizer.id(text), &Until::default()).unwrap().unwrap()
    };
    drop(start());
    let mut constraint = start();
    let mut sampler = Sampler::new(options);
    let text =
        tokenizer.encode_within("I will look at what there is, and then tell you in plain words.").unwrap();
    for &token in &text {
        let mut logits: Vec<f32> =
            (0..vocabulary.size()).map(|token| (token % 1000) as f32 / 100.0).collect();
        logits[token as usize] = 30.0;
        assert!(constraint.forced().unwrap().is_empty());
        assert_eq!(constraint.sample(&mut sampler, &mut logits, &[]).unwrap(), Some(token));
        constraint.accept(token).unwrap();
    }
    constraint.usage().step_time / text.len() as u32
}

#[test]
fn free_text_costs_little_under_every_sampler() {
    let Some(tokenizer) = shared_vocabulary("qwen2") else { return };
    let vocabulary = Vocabulary::of(Kind::Text, tokenizer.env());
    let hot = Sampling { temperature: 0.7, ..Sampling::default() };
    for (name, options) in [
        ("greedy", Sampling::default()),
        ("temperature", hot.clone()),
        ("top-k and top-p", Sampling { top_k: 20, top_p: 0.95, ..hot }),
    ] {
        let time = time_of_text(&vocabulary, &tokenizer, &options);
        println!("{name}: {time:?} a token");
        // Generous, since other tests run at the same time.
        assert!(time < Duration::from_millis(50), "{name}: {time:?}");
    }
}

#[test]
fn the_first_mask_of_a_kept_grammar_comes_soon() {
    let Some(tokenizer) = shared_vocabulary("qwen2") else { return };
    let vocabulary = Vocabulary::of(Kind::Text, tokenizer.env());
    for (count, choice) in [(3, ToolChoice::Auto), (263, ToolChoice::Auto), (263, ToolChoice::Required)] {
        let turn = Turn { tools: tools::tools(count), ..turn(choice.clone()) };
        let token = |text: &str| tokenizer.id(text);
        let once = || {
            let started = Instant::now();
            let mut constraint =
                vocabulary.grammar.constraint(&turn, &token, &Until::default()).unwrap().unwrap();
            for token in constraint.forced().unwrap() {
                constraint.accept(token).unwrap();
            }
            constraint.mask(&mut vec![0.0; vocabulary.size()]).unwrap();
            started.elapsed()
        };
        let cold = once();
        let warm = (0..5).map(|_| once()).min().unwrap();
        println!("{count} tools, {choice:?}: first mask after {cold:?} cold, {warm:?} warm");
        assert!(warm < Duration::from_millis(20), "{count} tools: {warm:?}");
    }
}
