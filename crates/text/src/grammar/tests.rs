mod agreement;
mod faults;
#[path = "../../../../tests/markers.rs"]
mod markers;
mod runtime;
mod sampling;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};
use toktrie::{TokRxInfo, TokTrie, TokenizerEnv};

use super::*;
use crate::chat::{Format, Parsed, Parser, Reasoning};
use crate::gguf::Gguf;
use crate::request::{GrammarUsage, Sampling, ToolCall, Until};
use crate::sampler::Sampler;
use crate::tokenizer::Tokenizer;
use crate::tools::code_tools;

const MARKERS: [&str; 4] = ["<tool_call>", "</tool_call>", "<think>", "</think>"];

/// How a vocabulary represents the markers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Control,
    UserDefined,
    Text,
}

/// A vocabulary of all bytes, some longer tokens, the markers and two tokens that end a turn.
struct Vocabulary {
    kind: Kind,
    env: TokEnv,
    grammar: Grammar,
}

struct Greedy(TokTrie);

impl TokenizerEnv for Greedy {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.0.greedy_tokenize(bytes)
    }
}

impl Vocabulary {
    fn new(kind: Kind) -> Self {
        let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let longer = [
            "name", "\"}", "</", "tool", "<tool", "_call", "{\"", "\": ", "\": \"", "é", "日", "\n\n",
            "argu", "<|",
        ];
        words.extend(longer.map(Vec::from));
        let mut markers: Vec<&str> = MARKERS.iter().chain(&markers::OTHERS).copied().collect();
        markers.sort_unstable();
        markers.dedup();
        for marker in markers {
            match kind {
                Kind::Control => words.push([b"\xff", marker.as_bytes()].concat()),
                Kind::UserDefined => words.push(marker.into()),
                Kind::Text => {}
            }
        }
        words.extend(
            ["\u{0}<|im_end|>", "\u{0}<|endoftext|>"].map(|end| [b"\xff", &end.as_bytes()[1..]].concat()),
        );
        let count = words.len() as u32;
        let trie =
            TokTrie::from(&TokRxInfo::new(count, count - 2), &words).with_eos_tokens(&[count - 2, count - 1]);
        Vocabulary::of(kind, Arc::new(Greedy(trie)))
    }

    fn of(kind: Kind, env: TokEnv) -> Self {
        let vocabulary = env.clone();
        let grammar = Grammar::new(move || vocabulary.clone());
        Vocabulary { kind, env, grammar }
    }

    fn get(kind: Kind) -> &'static Vocabulary {
        static ALL: OnceLock<[Vocabulary; 3]> = OnceLock::new();
        let all = ALL.get_or_init(|| [Kind::Control, Kind::UserDefined, Kind::Text].map(Vocabulary::new));
        all.iter().find(|vocabulary| vocabulary.kind == kind).unwrap()
    }

    fn token(&self, text: &str) -> Option<u32> {
        let trie = self.env.tok_trie();
        match self.kind {
            Kind::Control => trie.get_special_token(text),
            Kind::UserDefined => trie.token_id(text.as_bytes()),
            Kind::Text => None,
        }
    }

    fn size(&self) -> usize {
        self.env.tok_trie().vocab_size()
    }

    fn constraint(&self, turn: &Turn) -> Result<Option<Constraint>, GrammarError> {
        self.grammar.constraint(turn, &|text| self.token(text), &Until::default())
    }

    fn text(&self, tokens: &[u32]) -> String {
        let trie = self.env.tok_trie();
        let bytes = tokens.iter().flat_map(|&token| trie.token(token)).copied().filter(|&byte| byte != 0xff);
        String::from_utf8(bytes.collect()).unwrap()
    }

    /// Generates a turn from random logits; `None` if it has not ended after `most` tokens.
    fn generate(&self, turn: &Turn, seed: u64, most: usize) -> Option<String> {
        let mut constraint = self.constraint(turn).unwrap().unwrap();
        let options = Sampling { temperature: 1.5, seed, ..Sampling::default() };
        let mut sampler = Sampler::new(&options);
        let eos = self.env.tok_trie().eos_tokens();
        let mut tokens = Vec::new();
        while tokens.len() < most {
            for token in constraint.forced().unwrap() {
                constraint.accept(token).unwrap();
                tokens.push(token);
            }
            // A few more entries than the vocabulary, like padded embeddings.
            let mut logits: Vec<f32> = (0..self.size() + 5).map(|n| (n * n % 7) as f32 / 3.0).collect();
            self.tempt(&tokens, &mut logits);
            constraint.mask(&mut logits).unwrap();
            let token = sampler.sample(&mut logits, &[]).unwrap();
            assert!((token as usize) < self.size());
            if constraint.finished() {
                assert!(eos.contains(&token), "{token} after the end");
            }
            constraint.accept(token).unwrap();
            if eos.contains(&token) {
                assert!(constraint.finished());
                return Some(self.text(&tokens));
            }
            tokens.push(token);
        }
        None
    }

    /// Makes it likely that a marker begins, and that a begun marker is completed.
    fn tempt(&self, tokens: &[u32], logits: &mut [f32]) {
        let trie = self.env.tok_trie();
        let last: Vec<u8> =
            tokens.iter().rev().take(16).rev().flat_map(|&token| trie.token(token)).copied().collect();
        for marker in MARKERS.map(str::as_bytes) {
            let begun = (0..marker.len()).rev().find(|&length| last.ends_with(&marker[..length]));
            logits[usize::from(marker[begun.unwrap_or(0)])] += 4.0;
        }
    }

    /// Whether a turn may begin with this text, in single bytes if `bytes` is set.
    fn permits(&self, turn: &Turn, text: &str, bytes: bool) -> bool {
        let mut constraint = self.constraint(turn).unwrap().unwrap();
        let tokens = if bytes { text.bytes().map(u32::from).collect() } else { self.canonical(text) };
        tokens.into_iter().all(|token| constraint.accept(token).is_ok())
    }

    /// Tokenizes marker texts as their tokens, the rest greedily.
    fn canonical(&self, text: &str) -> Vec<u32> {
        let marker = MARKERS
            .iter()
            .filter_map(|marker| Some((text.find(marker)?, *marker, self.token(marker)?)))
            .min();
        match marker {
            None => self.env.tok_trie().greedy_tokenize(text.as_bytes()),
            Some((at, marker, id)) => {
                let mut tokens = self.env.tok_trie().greedy_tokenize(&text.as_bytes()[..at]);
                tokens.push(id);
                tokens.extend(self.canonical(&text[at + marker.len()..]));
                tokens
            }
        }
    }
}

/// The parser at the start of a Lark grammar, for the vocabulary of single bytes.
pub(crate) fn parser(lark: &str) -> TokenParser {
    Vocabulary::get(Kind::Text).grammar.compile(lark.into()).unwrap()
}

/// Whether a text is complete in a grammar.
pub(crate) fn accepts_in_lark(lark: &str, text: &str) -> bool {
    let mut constraint = Constraint::new(parser(lark), true, Duration::ZERO);
    for token in vocabulary().tokenize(text) {
        if !constraint.allows(token).unwrap() {
            return false;
        }
        constraint.accept(token).unwrap();
    }
    let end = constraint.trie().eos_token();
    constraint.finished() || constraint.allows(end).unwrap()
}

/// Single bytes and some longer tokens.
pub(crate) fn vocabulary() -> TokEnv {
    Vocabulary::get(Kind::Text).env.clone()
}

fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters: Value| Tool {
        name: name.into(),
        description: String::new(),
        parameters,
        strict: false,
    };
    vec![
        tool("ping", json!({"type": "object", "properties": {}})),
        tool(
            "get_weather",
            json!({"type": "object", "required": ["city"], "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit", "日本"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
            }}),
        ),
        tool(
            "create_event",
            json!({"type": "object", "required": ["when", "tags"], "properties": {
            "when": {"$ref": "#/$defs/when"},
            "tags": {"type": "array", "items": {"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/when"}]}, "maxItems": 3},
        }, "$defs": {"when": {"type": "object", "required": ["start"], "properties": {"start": {"type": "integer"}}}}}),
        ),
    ]
}

fn turn(tool_choice: ToolChoice) -> Turn {
    Turn {
        format: Format::from_name("hermes").unwrap(),
        thinking: Some(Format::from_name("hermes").unwrap().thinking),
        tools: tools(),
        tool_choice,
        bound: BTreeMap::new(),
        parallel_tool_calls: false,
        reasoning: Reasoning::Never,
        schema: None,
        grammar: None,
        string_limit: None,
        raw: false,
    }
}

/// Validates with an external validator.
fn validate(value: &Value, schema: &Value) -> Result<(), String> {
    jsonschema::validator_for(schema).unwrap().validate(value).map_err(|error| format!("{value}: {error}"))
}

fn parse(turn: &Turn, text: &str) -> Vec<Parsed> {
    let mut parser = Parser::new(turn);
    let mut out = parser.push(text);
    out.extend(parser.finish());
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_generated_call_is_valid(
        kind in prop::sample::select(vec![Kind::Control, Kind::UserDefined, Kind::Text]),
        tool_choice in prop::sample::select(vec![
            ToolChoice::Auto, ToolChoice::None, ToolChoice::Required, ToolChoice::Named("create_event".into()),
            ToolChoice::Among { names: vec!["create_event".into(), "ping".into()], required: true },
            ToolChoice::Among { names: vec!["create_event".into(), "ping".into()], required: false },
        ]),
        reasoning in prop::sample::select(vec![Reasoning::Never, Reasoning::Optional, Reasoning::Open]),
        parallel_tool_calls in any::<bool>(),
        seed in any::<u64>(),
        format in prop::sample::select(Format::all().to_vec()),
    ) {
        let kind = if format.tokens.is_empty() { kind } else { Kind::Control };
        let mut turn = Turn { parallel_tool_calls, reasoning, format, thinking: Some(format.thinking), ..turn(tool_choice.clone()) };
        if format.in_fences() {
            turn.tools = code_tools();
            match &mut turn.tool_choice {
                ToolChoice::Named(name) => *name = "python".into(),
                ToolChoice::Among { names, .. } => *names = vec!["python".into()],
                _ => {}
            }
        }
        let Some(text) = Vocabulary::get(kind).generate(&turn, seed, 20_000) else {
            return Err(TestCaseError::reject("not finished"));
        };
        let parsed = parse(&turn, &text);
        let calls: Vec<_> = parsed.iter().filter_map(|piece| match piece {
            Parsed::ToolCall { id, name, arguments } => Some((id, name, arguments)),
            _ => None,
        }).collect();
        match tool_choice {
            ToolChoice::None => prop_assert!(calls.is_empty()),
            choice => prop_assert!(!choice.must_call() || !calls.is_empty(), "{}", text),
        }
        prop_assert!(parallel_tool_calls || calls.len() <= 1);
        for piece in &parsed {
            if let Parsed::Text(text) = piece {
                prop_assert!(format.opener().is_empty() || !text.contains(format.opener()), "{}", text);
                prop_assert!(!format.in_fences() || !turn.reserved().iter().any(|mark| text.contains(&**mark)), "{}", text);
            }
        }
        for (id, name, arguments) in calls {
            let tool = turn.permitted().find(|tool| tool.name == *name);
            prop_assert!(tool.is_some(), "{} is not permitted", name);
            let schema = &tool.unwrap().parameters;
            let outcome = validate(&Value::Object(arguments.clone()), schema);
            prop_assert!(outcome.is_ok(), "{:?} in {}", outcome, text);
            let call = ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() };
            let rendered = turn.format.render_call(&call).unwrap();
            // Except numbers that don't fit 64 bits.
            let huge = text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 18) || text.contains("-0");
            // Except the number of a call within its turn, which the model writes.
            let numbered = format.name == "kimi-k3";
            prop_assert!(huge || numbered || text.contains(&rendered), "{} is not in {}", rendered, text);
        }
    }
}

/// The tokenizer of a vocabulary in the shared folder.
fn shared_vocabulary(name: &str) -> Option<Tokenizer> {
    let file = crate::absent::shared(&format!("fixtures/tokenizer/vocabs/{name}.gguf"))?;
    Some(Tokenizer::from_gguf(&Gguf::open(&file).unwrap()).unwrap())
}

#[test]
fn calls_are_valid_with_the_vocabulary_of_qwen2() {
    let Some(tokenizer) = shared_vocabulary("qwen2") else { return };
    // This file has no tokens for the markers, so the grammar spells them.
    assert_eq!(MARKERS.map(|marker| tokenizer.id(marker)), [None; 4]);
    let vocabulary = Vocabulary::of(Kind::Text, tokenizer.env());
    let mut finished = 0;
    for seed in 0..12 {
        let turn = Turn { parallel_tool_calls: seed % 2 == 0, ..turn(ToolChoice::Required) };
        let Some(text) = vocabulary.generate(&turn, seed, 400) else { continue };
        finished += 1;
        for piece in parse(&turn, &text) {
            let (name, arguments) = match piece {
                Parsed::ToolCall { name, arguments, .. } => (name, arguments),
                Parsed::Delta { .. } => continue,
                _ => panic!("{piece:?} in {text}"),
            };
            let schema = &turn.tools.iter().find(|tool| tool.name == name).unwrap().parameters;
            validate(&Value::Object(arguments), schema).unwrap();
        }
    }
    assert!(finished >= 6, "only {finished} finished");
}

#[test]
fn other_tools_are_unreachable() {
    for kind in [Kind::Control, Kind::UserDefined, Kind::Text] {
        let vocabulary = Vocabulary::get(kind);
        let check = |choice: &ToolChoice, text: &str, expected: bool| {
            assert_eq!(
                vocabulary.permits(&turn(choice.clone()), text, false),
                expected,
                "{kind:?} {choice:?} {text:?}"
            );
        };
        let ping = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
        let named = ToolChoice::Named("get_weather".into());
        let among = |required| ToolChoice::Among { names: vec!["get_weather".into()], required };
        for choice in [&ToolChoice::Auto, &ToolChoice::Required] {
            check(choice, ping, true);
            check(choice, "<tool_call>\n{\"name\": \"rm", false);
            check(choice, "<tool_call>\n{\"name\": \"pings", false);
            check(choice, "<tool_call>\n{\"name\": \"ping\", \"arguments\": {\"", false);
            check(choice, "<tool_call>\n{\"name\":\"", false);
            check(choice, "<tool_call>{", false);
            check(choice, &format!("{ping}\n"), false);
        }
        check(&ToolChoice::Auto, "Hi <b> {\"name\": \"rm\"}", true);
        check(&ToolChoice::Auto, &format!("Hi\n{ping}"), true);
        check(&ToolChoice::Required, "Hi", false);
        check(&ToolChoice::None, "Hi", true);
        check(&ToolChoice::None, "<tool_call>", false);
        check(&named, "<tool_call>\n{\"name\": \"get", true);
        check(&named, "<tool_call>\n{\"name\": \"ping", false);
        for required in [true, false] {
            check(&among(required), "<tool_call>\n{\"name\": \"get", true);
            check(&among(required), "<tool_call>\n{\"name\": \"ping", false);
            check(&among(required), "Hi", !required);
        }
    }
}

#[test]
fn text_can_not_spell_a_marker_out() {
    for kind in [Kind::Control, Kind::UserDefined] {
        let vocabulary = Vocabulary::get(kind);
        for marker in ["<tool_call>", "<think>"] {
            let turn = turn(ToolChoice::Auto);
            assert!(vocabulary.permits(&turn, &marker[..marker.len() - 1], true), "{kind:?}");
            assert!(!vocabulary.permits(&turn, marker, true), "{kind:?} {marker}");
        }
    }
}

#[test]
fn forces_what_the_grammar_leaves_no_choice_about() {
    let vocabulary = Vocabulary::get(Kind::Control);
    let turn = turn(ToolChoice::Named("ping".into()));
    let mut constraint = vocabulary.constraint(&turn).unwrap().unwrap();
    let mut tokens = Vec::new();
    while !constraint.finished() {
        let forced = constraint.forced().unwrap();
        assert!(!forced.is_empty(), "{:?}", vocabulary.text(&tokens));
        forced.iter().for_each(|&token| constraint.accept(token).unwrap());
        tokens.extend(forced);
    }
    assert_eq!(
        vocabulary.text(&tokens),
        "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>"
    );
    assert_eq!(tokens[0], vocabulary.token("<tool_call>").unwrap());
}

#[test]
fn errors_are_sticky() {
    let vocabulary = Vocabulary::get(Kind::Control);
    let mut constraint = vocabulary.constraint(&turn(ToolChoice::Required)).unwrap().unwrap();
    assert!(constraint.accept(u32::from(b'x')).is_err());
    assert!(constraint.mask(&mut [0.0; 300]).is_err());
    assert!(constraint.forced().is_err());
    assert!(constraint.accept(vocabulary.token("<tool_call>").unwrap()).is_err());
    assert!(!constraint.finished());
}

#[test]
fn refuses_what_it_can_not_guarantee() {
    let check = |parameters: Value, choice: ToolChoice, expected: &str| {
        let mut turn = turn(choice);
        turn.tools[1].parameters = parameters;
        turn.tools[1].strict = true;
        let error = Vocabulary::get(Kind::Text).constraint(&turn).err().unwrap();
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    check(
        json!({"type": "object", "properties": {"a": {"not": {"pattern": "a"}}}}),
        ToolChoice::Auto,
        "the parameters of tool get_weather can't be guaranteed: not at /properties/a/not: ",
    );
    check(
        json!({"type": "object", "properties": {"a": {"type": "kaboom"}}}),
        ToolChoice::Auto,
        "the parameters of tool get_weather can't be guaranteed: ",
    );
    check(
        json!({}),
        ToolChoice::Named("rm".into()),
        "tool choice asks for tool rm, but the request has only ping, get_weather, create_event",
    );
    let without_tools = Turn { tools: Vec::new(), ..turn(ToolChoice::Auto) };
    assert!(Vocabulary::get(Kind::Text).constraint(&without_tools).unwrap().is_none());
    let without_tools = Turn { tools: Vec::new(), ..turn(ToolChoice::Required) };
    assert!(Vocabulary::get(Kind::Text).constraint(&without_tools).is_err());
}
