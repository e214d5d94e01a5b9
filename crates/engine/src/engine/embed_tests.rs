//! Compares embeddings of encoders and decoders with llama.cpp's and Hugging Face's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use alara_text::gguf::{TensorType, Writer};
use half::f16;
use serde::Deserialize;

use super::tests::{collect, request, sampled};
use super::*;

/// `[CLS]` and `[SEP]` of the tiny encoders.
const AROUND: [u32; 2] = [2, 3];

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/embedding").join(path)
}

/// A fixture's model with this pooling.
fn pooled(path: &str, pooling: u32) -> Gguf {
    let gguf = Gguf::open(&fixture(path)).unwrap();
    let architecture = gguf.metadata().str("general.architecture").unwrap().unwrap().to_owned();
    let writer = Writer::copy_of(&gguf).meta(&format!("{architecture}.pooling_type"), pooling);
    Gguf::from_vec("tiny", writer.bytes().unwrap()).unwrap()
}

fn load(gguf: &Gguf, options: &Options) -> Engine {
    let options = Options {
        kv: KvType::F32,
        threads: 2,
        // The decoders among the fixtures have no template.
        chat_template: Some("{{ messages[0].content }}".into()),
        ..options.clone()
    };
    Engine::load(gguf, &options).unwrap()
}

fn encoder(context: Option<usize>) -> Engine {
    load(&pooled("bert.gguf", 1), &Options { context, ..Options::default() })
}

fn vector(engine: &Engine, input: EmbedInput) -> Vec<f32> {
    engine.embed(&[input], false).unwrap().vectors.remove(0)
}

/// The greatest difference of a number, and the cosine similarity.
fn compared(found: &[f32], expected: &[f32]) -> (f32, f64) {
    assert_eq!(found.len(), expected.len());
    let pairs = || found.iter().zip(expected);
    let off = pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    (off, pairs().map(|(&a, &b)| f64::from(a) * f64::from(b)).sum())
}

#[derive(Deserialize)]
struct Case {
    model: String,
    pooling: String,
    tokens: Vec<u32>,
    embedding: Vec<f32>,
}

/// llama.cpp uses the tanh form of GELU, from a table in f16: models with GELU differ by a few
/// 1e-4.
/// BERT was trained with the exact form, which we use.
#[test]
fn vectors_are_those_of_llama_cpp() {
    let lines = std::fs::read_to_string(fixture("embeddings.jsonl")).unwrap();
    let mut engines = BTreeMap::new();
    let mut count = 0;
    for line in lines.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let pooling = ["mean", "cls", "last"].iter().position(|name| *name == case.pooling).unwrap() + 1;
        let engine = engines
            .entry((case.model.clone(), pooling))
            .or_insert_with(|| load(&pooled(&case.model, pooling as u32), &Options::default()));
        let (off, cosine) = compared(&vector(engine, EmbedInput::Tokens(case.tokens)), &case.embedding);
        let gelu = case.model == "bert.gguf" || case.model.contains("gemma3");
        let tolerance = if gelu { 5e-4 } else { 1e-5 };
        let about = format!("{} {}: off by {off:e}, cosine {cosine}", case.model, case.pooling);
        println!("{about}");
        assert!(off < tolerance && cosine > 0.9999, "{about}");
        count += 1;
    }
    assert_eq!(count, 27);
}

#[test]
fn without_a_word_of_the_file_states_are_averaged() {
    let mean = load(&pooled("../arch/qwen3-exact/model.gguf", 1), &Options::default());
    let silent = load(&Gguf::open(&fixture("../arch/qwen3-exact/model.gguf")).unwrap(), &Options::default());
    let input = || EmbedInput::Text("the house in the forest".into());
    assert_eq!(vector(&mean, input()), vector(&silent, input()));
    let ranks = load(&pooled("../arch/qwen3-exact/model.gguf", 4), &Options::default());
    let error = ranks.embed(&[input()], false).unwrap_err();
    assert!(error.to_string().contains("ranks texts"), "{error}");
}

#[test]
fn texts_together_are_as_each_alone() {
    let engine = encoder(None);
    // More texts than fit into a step, of various lengths.
    let texts: Vec<EmbedInput> = (0..70).map(|at| EmbedInput::Text("a cat ".repeat(1 + at % 30))).collect();
    let together = engine.embed(&texts, true).unwrap();
    assert_eq!(together.tokens, (0..70).map(|at| (2 + 2 * (1 + at % 30)).min(64)).sum::<usize>());
    for at in [0, 1, 7, 29, 30, 69] {
        assert_eq!(together.vectors[at], vector(&engine, texts[at].clone()), "{at}");
    }
    let length: f32 = together.vectors[3].iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-5);
}

#[test]
fn another_backend_gives_the_same_within_rounding() {
    for file in ["bert.gguf", "nomic-bert.gguf"] {
        let gguf = Gguf::open(&fixture(file)).unwrap();
        let offload = Offload { device: Device::Candle, ..Offload::default() };
        let other = load(&gguf, &Options { offload, ..Options::default() });
        let native = load(&gguf, &Options::default());
        let input = || EmbedInput::Text("the cat, chasing the cat.".into());
        let (off, _) = compared(&vector(&native, input()), &vector(&other, input()));
        assert!(off < 1e-5, "{file}: {off:e}");
    }
}

#[test]
fn a_text_that_is_too_long_is_cut_only_where_that_is_asked() {
    let engine = encoder(Some(8));
    let long = EmbedInput::Text("the cat the cat the cat the cat".into());
    let error = engine.embed(std::slice::from_ref(&long), false).unwrap_err();
    assert!(matches!(error, Error::PromptTooLong { context: 8, .. }), "{error}");
    let cut = engine.embed(std::slice::from_ref(&long), true).unwrap();
    assert_eq!(cut.tokens, 8);
    let mut tokens = engine.tokenizer().encode_whole("the cat the cat the cat the cat", false).unwrap();
    assert_eq!([tokens[0], *tokens.last().unwrap()], AROUND);
    tokens.truncate(7);
    tokens.push(AROUND[1]);
    assert_eq!(cut.vectors[0], vector(&engine, EmbedInput::Tokens(tokens)));
    // An input that fits isn't truncated.
    let whole = EmbedInput::Tokens(vec![2, 5, 6, 7, 8, 9, 10, 3]);
    assert_eq!(engine.embed(&[whole], false).unwrap().tokens, 8);
}

#[test]
fn inputs_that_have_no_embedding_are_refused() {
    let engine = encoder(None);
    let check = |input: EmbedInput, expected: &str| {
        let error = engine.embed(&[input], true).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(EmbedInput::Tokens(Vec::new()), "without tokens");
    check(EmbedInput::Tokens(vec![2, 400, 3]), "token 400 is outside the vocabulary");
    assert_eq!(engine.embed(&[], false).unwrap(), Embeddings::default());
}

#[test]
fn an_encoder_writes_no_text() {
    let engine = encoder(None);
    assert!(engine.is_encoder());
    let refused = [engine.generate(&request("hello", 4)).err(), engine.prompt(&request("hello", 4)).err()];
    let refused = refused.map(|error| error.map_or_else(String::new, |error| error.to_string()));
    assert!(refused.iter().all(|error| error.contains("tiny is an encoder")), "{refused:?}");
    let longer = Options { context: Some(65), ..Options::default() };
    assert_eq!(Engine::load(&pooled("bert.gguf", 1), &longer).unwrap().context(), 64);
    let estimate = Engine::memory_estimate(&pooled("bert.gguf", 1), &Options::default()).unwrap();
    assert!(estimate.weights > 250_000 && estimate.kv > 0 && estimate.state == 0, "{estimate}");
    let probe = crate::Probe::load(&pooled("bert.gguf", 1), 8, &crate::ProbeSettings::default());
    assert!(probe.unwrap_err().to_string().contains("is an encoder"));
}

#[test]
fn a_decoder_embeds_beside_turns_that_run() {
    let engine = super::tests::engine(256, 2);
    let input = || EmbedInput::Text("the house in the forest and the kitchen".into());
    let alone = vector(&engine, input());
    let expected = collect(engine.generate(&sampled("one", 3)).unwrap()).text;
    let turn = engine.generate(&sampled("one", 3)).unwrap();
    assert_eq!(vector(&engine, input()), alone);
    assert_eq!(collect(turn).text, expected);
    // Also if the cache is full of earlier conversations.
    for seed in 0..12 {
        drop(collect(engine.generate(&sampled(&format!("say {seed} of the house"), seed)).unwrap()));
    }
    assert_eq!(vector(&engine, input()), alone);
    let error = engine.embed(&[EmbedInput::Tokens(vec![5; 257])], false).unwrap_err();
    assert!(matches!(error, Error::PromptTooLong { prompt: 257, context: 256, .. }), "{error}");
}

/// The same model with matrices in f16.
fn halved(gguf: &Gguf) -> Gguf {
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        writer = writer.meta(key, value.clone());
    }
    for info in gguf.tensors() {
        let data = gguf.data(info);
        writer = match info.shape.len() > 1 {
            true => {
                let numbers = data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
                let data = numbers.flat_map(|number| f16::from_f32(number).to_le_bytes());
                writer.tensor(&info.name, &info.shape, TensorType::F16, data.collect::<Vec<_>>())
            }
            false => writer.tensor(&info.name, &info.shape, TensorType::F32, data.to_vec()),
        };
    }
    Gguf::from_vec("minilm", writer.bytes().unwrap()).unwrap()
}

/// Compares a published model with a forward pass in f64.
#[test]
fn vectors_of_a_real_encoder() {
    #[derive(Deserialize)]
    struct Line {
        text: String,
        ids: Vec<u32>,
        embedding: Vec<f32>,
    }
    let Some(lines) = crate::absent::shared("fixtures/embedding/minilm.jsonl") else { return };
    let folder = Path::new(&std::env::var("ALARA_REAL_MODELS").unwrap_or_default()).join("all-MiniLM-L6-v2");
    if !folder.join("model.safetensors").exists() {
        let how = "ALARA_REAL_MODELS names their folder";
        return crate::absent::skipped("real models", "all-MiniLM-L6-v2/model.safetensors", how);
    }
    let lines = std::fs::read_to_string(lines).unwrap();
    let lines: Vec<Line> =
        lines.split('\n').filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<_>>();
    assert_eq!(lines.len(), 16);
    // Accounts for another order of f32 sums, and for rounding weights to f16.
    let whole = crate::open(&folder).unwrap();
    for (gguf, tolerance, least) in [(&whole, 1e-5, 0.999_999), (&halved(&whole), 1e-3, 0.9999)] {
        let engine = load(gguf, &Options { context: Some(256), ..Options::default() });
        let inputs: Vec<EmbedInput> = lines.iter().map(|line| EmbedInput::Tokens(line.ids.clone())).collect();
        let made = engine.embed(&inputs, false).unwrap();
        assert_eq!(made.tokens, lines.iter().map(|line| line.ids.len()).sum::<usize>());
        for (line, vector) in lines.iter().zip(&made.vectors) {
            let (off, cosine) = compared(vector, &line.embedding);
            assert!(off < tolerance && cosine > least, "{:?}: off by {off:e}, cosine {cosine}", line.text);
            // There, texts of control tokens become such tokens; here they never do.
            if !line.text.contains("[MASK]") && !line.text.contains("[SEP]") {
                let text = engine.embed(&[EmbedInput::Text(line.text.clone())], true).unwrap();
                assert_eq!((text.tokens, &text.vectors[0]), (line.ids.len(), vector), "{:?}", line.text);
            }
        }
    }
}
