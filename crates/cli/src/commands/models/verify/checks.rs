//! The individual checks.

use std::io::Read;
use std::path::Path;

use alara_engine::inspect::{
    Architecture, Facts, MemoryBreakdown, MemoryEstimate, Sizes, Tokenizer, chat_template,
};
use alara_engine::{
    Engine, Error, Event, Finish, Gguf, KvType, Message, Offload, Options, Probe, ProbeSettings, Request,
    Segment, Tool, ToolCall, ToolChoice,
};
use alara_models::{catalog, shipped};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{Finding, Reason};
use crate::ui;

/// Plain prose and code.
const SAMPLE: &str = include_str!("sample.txt");

/// Number of tokens of the sample to use.
const SAMPLE_TOKENS: usize = 512;

/// Number of rows whose logits are in memory at once.
const ROWS: usize = 32;

/// Texts that the tokenizer must reproduce: letters of several scripts, characters of two UTF-16
/// code units, code, runs of whitespace, digits, control characters.
const TEXTS: [&str; 9] = [
    "The quick brown fox doesn't jump over 1234567 lazy dogs, does it?",
    "Größe, naïve, œuvre, señor, Århus, żółć, İstanbul",
    "Съешь же ещё этих мягких французских булок",
    "我能吞下玻璃而不伤身体。日本語のテキスト、한국어 문장",
    "مرحبا بالعالم · שלום עולם · नमस्ते दुनिया · สวัสดี",
    "👩\u{200d}👩\u{200d}👧 🏳\u{fe0f}\u{200d}🌈 👍🏽 ∑ ≠ √ 𝔘𝔫𝔦 €",
    "fn main() {\n\tlet x: Vec<u8> = vec![0; 1 << 10];\n    println!(\"{x:?}\\n\"); // <b>&amp;</b>\n}\r\n",
    "  two,   three,\n\n\n lines\t\ttabs \u{a0}end  ",
    "{\"a\": [1, 2.5e-3, null], \"b\": {\"c\": \"\\u00e9\"}} <tool> [INST] </s>",
];

/// Compares the checksum of the file with the catalog's, for a model of that name.
/// Otherwise compares it with the one in the file's name, as in Ollama's store and the hub's cache.
pub fn checksum(gguf: &Gguf, name: Option<&str>) -> Finding {
    let path = Path::new(gguf.name());
    let entry = name.and_then(|name| catalog::find(name).ok().flatten());
    let expected = entry.and_then(|entry| entry.sha256.clone()).or_else(|| hash_in_name(path));
    // For a checkpoint, the file of tensors has a checksum.
    let whole = gguf.parts() == 1 || path.ends_with(alara_engine::WEIGHTS);
    let Some(expected) = expected.filter(|_| whole) else {
        return Err(Reason::Skipped("none is known for this file".to_owned()));
    };
    let found = sha256(path).map_err(|error| Reason::Failed(format!("{}: {error}", path.display())))?;
    if found == expected {
        Ok((format!("sha256 {found}"), None))
    } else {
        let reason = format!("the sha256 is {found}, expected {expected}: download the file again");
        Err(Reason::Failed(reason))
    }
}

/// Returns the checksum in the name of the file that `path` resolves to.
fn hash_in_name(path: &Path) -> Option<String> {
    let file = path.canonicalize().ok()?;
    let name = file.file_name()?.to_str()?.to_lowercase();
    let hash = name.strip_prefix("sha256-").unwrap_or(&name);
    (hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit())).then(|| hash.to_owned())
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = alara_engine::file::open(path)?;
    let bar = ui::progress(file.metadata()?.len(), "checksum");
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            bar.finish_and_clear();
            return Ok(hexadecimal(&hash.finalize()));
        }
        hash.update(&buffer[..read]);
        bar.inc(read as u64);
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Rejects a model that doesn't fit in this machine's memory, and a device that can't be used.
/// Leaves other problems to the other checks.
pub fn fits(gguf: &Gguf, offload: Offload) -> alara_engine::Result<()> {
    let Ok(parts) = MemoryBreakdown::of(gguf, SAMPLE_TOKENS, KvType::F16) else { return Ok(()) };
    let host = match offload.plan(&parts)? {
        Some((_, Ok(placement))) => placement.host,
        _ => parts.whole,
    };
    match alara_models::memory::available() {
        Some(available) => host.check(gguf.name(), SAMPLE_TOKENS, available),
        None => Ok(()),
    }
}

/// Checks that every tensor required by the architecture is present, with the right shape and a
/// supported type.
pub fn tensors(gguf: &Gguf) -> Finding {
    let architecture = Architecture::of(gguf)?;
    let facts = Facts::new(gguf, &architecture)?;
    let sizes = Sizes::of(&facts)?;
    MemoryEstimate::of(gguf, SAMPLE_TOKENS, 1, KvType::F16)?;
    let (unused, used): (Vec<_>, Vec<_>) =
        gguf.tensors().partition(|tensor| facts.ignores(&tensor.name, &sizes));
    let rest = if unused.is_empty() { String::new() } else { format!(", {} not used", unused.len()) };
    Ok((format!("{} as {} has them{rest}", used.len(), architecture.architecture), None))
}

/// Checks that encoding and decoding restores each text.
/// The fingerprint covers the vocabulary, merges and rules.
pub fn round_trips(tokenizer: &Tokenizer) -> Finding {
    if tokenizer.normalizes() {
        return Err(Reason::Skipped(format!("{} changes texts before it cuts them", tokenizer.algorithm())));
    }
    for text in TEXTS.into_iter().chain([SAMPLE]) {
        let back = tokenizer.round_trip(text)?;
        if back != text {
            return Err(Reason::Failed(format!("{text:?} comes back as {back:?}")));
        }
    }
    let fingerprint = &hexadecimal(&tokenizer.fingerprint())[..16];
    let (rule, tokens) = (tokenizer.pre_tokenizer().unwrap_or(tokenizer.algorithm()), tokenizer.len());
    Ok((
        format!("{rule}, {tokens} tokens, fingerprint {fingerprint}, {} texts come back", TEXTS.len() + 1),
        None,
    ))
}

/// Checks that the template compiles and renders a small conversation; reports its support for a
/// system prompt, tools and tool results.
pub fn template(gguf: &Gguf, tokenizer: &Tokenizer) -> Finding {
    let chosen = match chat_template(gguf, tokenizer, None) {
        Err(Error::NoTemplate { .. }) => {
            return Err(Reason::Skipped("the file has none, and its family is not known".to_owned()));
        }
        chosen => chosen?,
    };
    let whose = if chosen.note.is_some() { ", the built-in one of its family" } else { "" };
    let template = chosen.template;
    let control: Vec<String> = tokenizer.control_texts().map(String::from).collect();

    let call =
        ToolCall { id: "call00001".to_owned(), name: "weather_now".to_owned(), arguments: arguments() };
    let plain = vec![
        Message::user("How warm is it?"),
        Message::assistant("Where?", Vec::new()),
        Message::user("In the mountains."),
    ];
    let mut with_call = plain.clone();
    with_call.extend([Message::assistant("", vec![call.clone()]), Message::tool_result(&call, "12 degrees")]);
    let system = vec![Segment { name: "directive".to_owned(), text: "You are brief.".to_owned() }];
    let request = |system: &[Segment], messages: &[Message], tools: Vec<Tool>| Request {
        system: system.to_vec(),
        messages: messages.to_vec(),
        tools,
        ..Request::default()
    };
    // From the fullest conversation to the simplest; not every family supports tools or a system
    // prompt.
    let attempts = [
        ("system, user, assistant, tool calls and results", request(&system, &with_call, vec![tool()])),
        ("system, user and assistant, no tools", request(&system, &plain, Vec::new())),
        ("user and assistant, neither system nor tools", request(&[], &plain, Vec::new())),
    ];
    let now = jiff::civil::date(2026, 1, 2).at(3, 4, 5, 0);
    let mut refusal = None;
    for (what, request) in attempts {
        match template.render(&request, &control, now) {
            Ok(prompt) => {
                // A template silently drops what it doesn't support.
                let shows = |text: &str| prompt.text.contains(text);
                if !shows("In the mountains.") {
                    return Err(Reason::Failed("a user's message is not in the prompt".to_owned()));
                }
                if request.tools.iter().any(|tool| !shows(&tool.name)) {
                    continue;
                }
                return Ok((format!("{what}: {} characters{whose}", prompt.text.chars().count()), None));
            }
            Err(error) => refusal = Some(error),
        }
    }
    match refusal {
        Some(error) => Err(error.into()),
        None => Err(Reason::Failed("it leaves out tools, and fails without them".to_owned())),
    }
}

/// Measures the model's perplexity on the sample.
///
/// Random weights, or a computation that is wrong from the first block on, give the vocabulary size
/// V or more.
/// A model trained on any English is far below that.
/// A trained model with half a billion parameters has a perplexity of 10 to 30 on such a text.
/// The limit is the square root of V, 389 for a vocabulary of 151 936: half of the bits of a
/// uniform distribution.
/// A subtle error costs a few per cent, which can't be detected without a reference; so the number
/// is shown.
pub fn perplexity(gguf: &Gguf, tokenizer: &Tokenizer, offload: Offload) -> Finding {
    let context = Sizes::of(&Facts::new(gguf, &Architecture::of(gguf)?)?)?.context;
    let mut tokens = tokenizer.encode_prompt(SAMPLE, &[])?;
    tokens.truncate(SAMPLE_TOKENS.min(context));
    let mut probe = Probe::load(gguf, tokens.len(), &settings(offload))?;
    let vocabulary = probe.vocabulary();
    let bar = ui::progress(tokens.len() as u64, "perplexity");
    let (mut bits, mut rows) = (0.0, 0);
    for (at, piece) in tokens.chunks(ROWS).enumerate() {
        let logits = probe.feed(piece, piece.len())?;
        let next = tokens.iter().skip(at * ROWS + 1);
        for (row, &token) in logits.chunks_exact(vocabulary).zip(next) {
            if row.iter().any(|logit| !logit.is_finite()) {
                return Err(Reason::Failed("there are logits that are not finite".to_owned()));
            }
            bits += surprise(row, token as usize);
            rows += 1;
        }
        bar.inc(piece.len() as u64);
    }
    bar.finish_and_clear();
    let found = (bits / f64::from(rows.max(1))).exp();
    let most = (vocabulary as f64).sqrt();
    if gguf.name() == shipped::NAME {
        let reason = format!("{found:.0}, but the model that ships has learnt tasks only; logits are finite");
        return Err(Reason::Skipped(reason));
    }
    if found < most {
        return Ok((
            format!("{found:.2} over {rows} tokens of prose and code; logits are finite"),
            Some(found),
        ));
    }
    Err(Reason::Failed(format!(
        "{found:.0} over {rows} tokens of prose and code, more than {most:.0}; random weights give {vocabulary}, the size \
         of the vocabulary, or more"
    )))
}

/// `-ln p(token)`, by the softmax of `logits`.
fn surprise(logits: &[f32], token: usize) -> f64 {
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - most).exp()).sum();
    sum.ln() - f64::from(logits[token] - most)
}

/// Checks that a sequence processed in two parts, the second using the cache of the first, gives
/// the same result as in one part.
pub fn continuation(gguf: &Gguf, offload: Offload) -> Finding {
    const TOKENS: usize = 48;
    const FIRST: usize = 31;
    let mut probe = Probe::load(gguf, TOKENS, &settings(offload))?;
    let vocabulary = probe.vocabulary() as u32;
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|at| (at * 7919 + 11) % vocabulary).collect();
    let whole = probe.feed(&tokens, 1)?;
    probe.clear();
    probe.feed(&tokens[..FIRST], 0)?;
    let parts = probe.feed(&tokens[FIRST..], 1)?;
    let scale = whole.iter().map(|logit| logit.abs()).fold(f32::MIN_POSITIVE, f32::max);
    let apart = whole.iter().zip(&parts).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / scale;
    // Recurrent state differs in its last bits if it is advanced in chunks; everything else is
    // identical.
    if apart <= 1e-3 {
        let how = if apart == 0.0 { "bit for bit".to_owned() } else { format!("within {apart:.1e}") };
        return Ok((format!("from the cache as from the beginning, {how}"), None));
    }
    Err(Reason::Failed(format!("from the cache, logits are off by {apart:.1e} of the largest")))
}

/// Checks that a turn that must call a tool does so, with arguments that its schema permits.
pub fn tool_call(gguf: &Gguf, offload: Offload) -> Finding {
    const MOST_TOKENS: usize = 256;
    let context = Sizes::of(&Facts::new(gguf, &Architecture::of(gguf)?)?)?.context.min(2048);
    let options = Options { context: Some(context), offload, ..Options::default() };
    let engine = Engine::load(gguf, &options).map_err(no_tools)?;
    let request = Request {
        messages: vec![Message::user("How warm is it now, in degrees Celsius?")],
        tools: vec![tool()],
        tool_choice: ToolChoice::Required,
        max_tokens: Some(MOST_TOKENS),
        thinking: Some(false),
        ..Request::default()
    };
    let spinner = ui::spinner();
    spinner.set_message("tool call");
    let (mut calls, mut thinks, mut end) = (Vec::new(), false, Finish::Stop);
    for event in engine.generate(&request).map_err(no_tools)? {
        match event? {
            Event::ToolCall(call) => calls.push(call),
            Event::Reasoning { .. } => thinks = true,
            Event::Done { finish, .. } => end = finish,
            Event::Prefill { .. }
            | Event::Text { .. }
            | Event::ToolCallDelta { .. }
            | Event::Incomplete { .. }
            | Event::Logprobs { .. }
            | Event::PromptLogprobs { .. } => {}
        }
    }
    spinner.finish_and_clear();
    match calls.first() {
        Some(call) if call.name == tool().name && permitted(&call.arguments) => {
            Ok((format!("{} {}", call.name, Value::Object(call.arguments.clone())), None))
        }
        Some(call) => {
            let arguments = Value::Object(call.arguments.clone());
            Err(Reason::Failed(format!("{} {arguments} is not what the schema permits", call.name)))
        }
        None if thinks && end == Finish::Length => {
            Err(Reason::Skipped(format!("the model was still reasoning after {MOST_TOKENS} tokens")))
        }
        None => Err(Reason::Failed("the turn ended without the call that was required".to_owned())),
    }
}

/// Skips the check for a model without tools, which isn't a failure.
fn no_tools(error: Error) -> Reason {
    match error {
        Error::NoToolFormat { .. } => Reason::Skipped("the model has no format of tool calls".to_owned()),
        Error::NoTemplate { .. } => Reason::Skipped("the file has no chat template".to_owned()),
        other => other.into(),
    }
}

/// A tool whose arguments have few possible values, so that a call is short whatever the model
/// prefers.
fn tool() -> Tool {
    Tool {
        name: "weather_now".to_owned(),
        description: "Tells the temperature outside".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "rounded": {"type": "boolean"}
            },
            "required": ["unit", "rounded"],
            "additionalProperties": false
        }),
        strict: false,
    }
}

fn arguments() -> Map<String, Value> {
    Map::from_iter([("unit".to_owned(), json!("celsius")), ("rounded".to_owned(), json!(true))])
}

/// Whether the schema of [`tool`] permits `arguments`.
fn permitted(arguments: &Map<String, Value>) -> bool {
    arguments.len() == 2
        && matches!(arguments.get("unit").and_then(Value::as_str), Some("celsius" | "fahrenheit"))
        && arguments.get("rounded").is_some_and(Value::is_boolean)
}

/// The settings of a normal run.
fn settings(offload: Offload) -> ProbeSettings {
    ProbeSettings { kv: KvType::F16, offload, ..ProbeSettings::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surprise_of_a_guess() {
        let check = |logits: &[f32], token, expected: f64| {
            assert!((surprise(logits, token) - expected).abs() < 1e-6);
        };
        check(&[0.0; 8], 3, 8f64.ln());
        check(&[100.0, 100.0, -1e30], 0, 2f64.ln());
        check(&[0.0, 200.0], 0, 200.0);
    }

    #[test]
    fn a_checksum_in_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let hash = hexadecimal(&Sha256::digest(b"abc"));
        let check = |name: &str, bytes: &[u8], named: bool, same: bool| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(hash_in_name(&path), named.then(|| hash.clone()), "{name}");
            assert_eq!(sha256(&path).unwrap() == hash, same, "{name}");
        };
        check(&format!("sha256-{hash}"), b"abc", true, true);
        check(&hash, b"abd", true, false);
        check("model.gguf", b"abc", false, true);
        check(&format!("{hash}.gguf"), b"abc", false, true);
    }

    #[test]
    fn what_a_schema_permits() {
        assert!(permitted(&arguments()));
        let mut more = arguments();
        more.insert("other".to_owned(), json!(1));
        assert!(!permitted(&more) && !permitted(&Map::new()));
    }
}
