//! Compares logits with llama.cpp's, on tiny models with random weights.
//!
//! A few cases are in `tests/fixtures/arch`; all of them, with a description, in
//! `$ALARA_SHARED/fixtures/arch` and `arch-more`.

use std::path::{Path, PathBuf};

use alara_text::gguf::{Array, Gguf, Value, Writer};
use serde::Deserialize;

use super::{Probe, ProbeSettings};
use crate::architecture::Architecture;
use crate::backend::candle::Candle;
use crate::backend::native::Native;
use crate::backend::split::Split;
use crate::backend::{Backend, Isa, KvType};
use crate::cache::{CacheConfig, Table};
use crate::decoder::Decoder;
use crate::device::Device;
use crate::facts::{Facts, Sizes};
use crate::offload::Offload;
use crate::pool::Pool;
use crate::pool::tests::together;

#[derive(Deserialize)]
struct Reference {
    tokens: Vec<u32>,
    n_vocab: usize,
    greedy_tokens: Option<Vec<u32>>,
    exact_gelu_greedy_tokens: Option<Vec<u32>>,
    tolerance: Tolerance,
}

#[derive(Deserialize)]
struct Tolerance {
    against: String,
    max_abs: f32,
    rms: f32,
    f16_kv_max_abs: Option<f32>,
    layers_rel_rms: Option<f32>,
    /// For files with experts: notes that one row may deviate.
    note: Option<String>,
}

/// A model with the results of a trusted engine.
struct Case {
    folder: PathBuf,
    name: String,
    gguf: Gguf,
    reference: Reference,
}

impl Case {
    fn floats(&self, name: &str) -> Vec<f32> {
        let bytes = std::fs::read(self.folder.join(name)).unwrap();
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
    }

    fn exact(&self) -> bool {
        self.name.ends_with("-exact")
    }

    fn probe(&self, device: Device, kv: KvType) -> Probe {
        self.probe_by(device, kv, Isa::best())
    }

    fn probe_by(&self, device: Device, kv: KvType, isa: Isa) -> Probe {
        let settings = ProbeSettings { kv, offload: Offload { device, ..Offload::cpu() }, threads: 2, isa };
        Probe::load(&self.gguf, 128, &settings).unwrap()
    }

    /// All logits of the case's tokens, fed in pieces of `chunk`.
    fn logits(&self, probe: &mut Probe, chunk: usize) -> Vec<f32> {
        probe.clear();
        let pieces = self.reference.tokens.chunks(chunk);
        pieces.flat_map(|piece| probe.feed(piece, piece.len()).unwrap()).collect()
    }

    /// All logits of the case's tokens, fed in pieces of 9 in steps shared with three other
    /// sequences.
    fn beside_others(&self) -> Vec<f32> {
        let config = CacheConfig::new(512, 4, 64, Some(8));
        let decoder = Decoder::load(&self.gguf, Native::with_threads(2), &config, KvType::F32).unwrap();
        let mut pool = Pool::new(decoder, &config);
        let own = &self.reference.tokens;
        let other = |length: usize, by: usize| own.iter().cycle().skip(by).take(length).copied().collect();
        let all: [Vec<u32>; 4] = [own.clone(), other(5, 3), other(33, 1), other(50, 7)];
        together(&mut pool, &all)
    }

    fn layers(&self) -> usize {
        let architecture = Architecture::of(&self.gguf).unwrap();
        Sizes::of(&Facts::new(&self.gguf, &architecture).unwrap()).unwrap().layers
    }

    /// All logits of the case's tokens, fed in pieces of 20, with the blocks from number `first` on
    /// on `device`.
    fn split(&self, device: impl Backend, first: usize) -> Vec<f32> {
        let config = CacheConfig::new(128, 1, 64, Some(8));
        let backend = Split::new(device, Native::with_threads(2), first);
        let decoder = Decoder::load(&self.gguf, backend, &config, KvType::F32).unwrap();
        let (mut pool, mut table) = (Pool::new(decoder, &config), Table::default());
        let pieces = self.reference.tokens.chunks(20);
        pieces.flat_map(|piece| pool.forward_one(&mut table, piece, piece.len()).unwrap()).collect()
    }

    /// The case's file with renamed entries: `key` and `tensor` return each new name, or `None` to
    /// drop it.
    fn renamed(
        &self,
        architecture: &str,
        key: &dyn Fn(&str) -> Option<String>,
        tensor: &dyn Fn(&str) -> String,
        more: &[(&str, Value)],
    ) -> Gguf {
        let metadata = self.gguf.metadata();
        let old = metadata.str("general.architecture").unwrap().unwrap();
        let mut writer = Writer::new().meta("general.architecture", architecture);
        for (name, value) in metadata.iter() {
            if let Some(name) = name.strip_prefix(&format!("{old}.")).and_then(key) {
                writer = writer.meta(&format!("{architecture}.{name}"), value.clone());
            }
        }
        for (name, value) in more {
            writer = writer.meta(&format!("{architecture}.{name}"), value.clone());
        }
        for info in self.gguf.tensors() {
            writer =
                writer.tensor(&tensor(&info.name), &info.shape, info.kind, self.gguf.data(info).to_vec());
        }
        Gguf::from_vec(architecture, writer.bytes().unwrap()).unwrap()
    }

    /// Compares the logits of another file with this case's reference.
    fn check_other(&self, gguf: &Gguf) {
        let settings = ProbeSettings { kv: KvType::F32, threads: 1, ..ProbeSettings::default() };
        let mut probe = Probe::load(gguf, 64, &settings).unwrap();
        let logits = self.logits(&mut probe, self.reference.tokens.len());
        self.check(&logits, self.reference.tolerance.max_abs, gguf.name());
    }

    /// Compares logits with the reference; in a quantized file with experts one row may deviate, if
    /// rounding selects another expert.
    #[track_caller]
    fn check(&self, found: &[f32], limit: f32, what: &str) {
        self.agrees(found, limit, what).unwrap();
    }

    /// As [`Case::check`], returning the deviation as an error.
    fn agrees(&self, found: &[f32], limit: f32, what: &str) -> Result<(), String> {
        let expected = self.floats(&self.reference.tolerance.against);
        let found = &found[found.len() - expected.len()..];
        let width = self.reference.n_vocab;
        let rows = found.chunks(width).zip(expected.chunks(width));
        let mut rows: Vec<(f32, f64)> = rows.map(|(a, b)| difference(a, b)).collect();
        if self.reference.tolerance.note.as_ref().is_some_and(|note| note.contains("expert")) {
            rows.sort_by(|a, b| a.0.total_cmp(&b.0));
            rows.pop();
        }
        let largest = rows.iter().map(|row| row.0).fold(0.0, f32::max);
        let rms = (rows.iter().map(|row| row.1).sum::<f64>() / rows.len() as f64).sqrt() as f32;
        println!("{} {what}: largest {largest:.2e} of {limit:.2e}, rms {rms:.2e}", self.name);
        let rms_limit = if what.contains("F16") { f32::INFINITY } else { self.reference.tolerance.rms };
        // NaN is never within limits.
        if largest <= limit && rms <= rms_limit {
            return Ok(());
        }
        Err(format!("{} {what}: {largest} of {limit}, rms {rms} of {rms_limit}", self.name))
    }
}

/// The largest and the mean square difference of two rows.
fn difference(a: &[f32], b: &[f32]) -> (f32, f64) {
    let squares: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let largest = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    (largest, squares / a.len() as f64)
}

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch")
}

/// The folder of all cases; prints a note if it is absent.
fn shared() -> Option<PathBuf> {
    shared_folder("arch")
}

fn shared_folder(name: &str) -> Option<PathBuf> {
    crate::absent::shared(&format!("fixtures/{name}"))
}

fn cases(folder: &Path) -> Vec<Case> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let Ok(text) = std::fs::read_to_string(folder.join("reference.json")) else { continue };
        let reference = serde_json::from_str(&text).unwrap();
        let gguf = Gguf::open(&folder.join("model.gguf")).unwrap();
        found.push(Case { folder, name, gguf, reference });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(only) = std::env::var_os("ALARA_CASE") {
        found.retain(|case| case.name.contains(&*only.to_string_lossy()));
    }
    found
}

/// The cases of further families.
fn more_cases() -> Vec<Case> {
    shared_folder("arch-more").map_or_else(Vec::new, |folder| cases(&folder))
}

fn all_cases() -> Vec<Case> {
    let folders = [Some(own()), shared()].into_iter().flatten();
    folders.flat_map(|folder| cases(&folder)).chain(more_cases()).collect()
}

#[test]
fn every_model_agrees_however_it_is_fed() {
    for case in all_cases() {
        let limit = case.reference.tolerance.max_abs;
        let mut probe = case.probe(Device::Cpu, KvType::F32);
        assert_eq!(probe.vocabulary(), case.reference.n_vocab);
        let whole = case.reference.tokens.len();
        for chunk in [1, 7, 20, whole] {
            let logits = case.logits(&mut probe, chunk);
            case.check(&logits, limit, &format!("in pieces of {chunk}"));
        }
        case.check(&case.beside_others(), limit, "beside three others");
        if let Some(limit) = case.reference.tolerance.f16_kv_max_abs.filter(|_| case.exact()) {
            let logits = case.logits(&mut case.probe(Device::Cpu, KvType::F16), whole);
            case.check(&logits, limit, "with F16 keys and values");
        }
    }
}

/// All ways of feeding are bitwise equal (see the pool's tests), so one suffices.
#[test]
fn every_model_agrees_by_every_instruction_set() {
    for case in all_cases() {
        for isa in Isa::available() {
            let logits = case.logits(&mut case.probe_by(Device::Cpu, KvType::F32, isa), 20);
            case.check(&logits, case.reference.tolerance.max_abs, &format!("by {isa:?}"));
        }
    }
}

#[test]
fn the_oracle_agrees_too() {
    for case in all_cases() {
        let mut probe = case.probe(Device::Candle, KvType::F32);
        for chunk in [1, 7, case.reference.tokens.len()] {
            let logits = case.logits(&mut probe, chunk);
            case.check(&logits, case.reference.tolerance.max_abs, &format!("on candle in pieces of {chunk}"));
        }
    }
}

/// Split at every block: the last blocks on the reference backend, earlier ones on the fast
/// backend.
#[test]
fn every_model_agrees_when_it_is_split() {
    for case in all_cases() {
        for first in 0..=case.layers() {
            let logits = case.split(Candle::cpu(), first);
            let what = format!("split before block {first}");
            case.check(&logits, case.reference.tolerance.max_abs, &what);
        }
    }
}

/// On this machine's GPU: all blocks, and half of them.
#[cfg(any(feature = "cuda", feature = "metal"))]
#[test]
fn every_model_agrees_on_the_gpu() {
    if Device::Auto.open().unwrap().is_none() {
        eprintln!("skipped: this machine has no GPU that this build can use");
        return;
    }
    let mut off = Vec::new();
    for case in all_cases() {
        for layers in [case.layers(), case.layers() / 2] {
            let offload = Offload { device: Device::Auto, layers: Some(layers), memory: None };
            let settings = ProbeSettings { kv: KvType::F32, offload, threads: 2, ..ProbeSettings::default() };
            let mut probe = Probe::load(&case.gguf, 128, &settings).unwrap();
            for chunk in [1, 20, case.reference.tokens.len()] {
                let what = format!("with {layers} layers on the GPU in pieces of {chunk}");
                let logits = case.logits(&mut probe, chunk);
                off.extend(case.agrees(&logits, case.reference.tolerance.max_abs, &what).err());
            }
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

/// A model split over two fast backends is bitwise equal to one: transfers change no numbers.
#[test]
fn a_split_changes_nothing_by_itself() {
    for case in cases(&own()) {
        let expected = case.logits(&mut case.probe(Device::Cpu, KvType::F32), 20);
        for first in 0..=case.layers() {
            assert!(case.split(Native::with_threads(2), first) == expected, "{}: {first}", case.name);
        }
    }
}

#[test]
fn greedy_continuations_are_the_reference_s() {
    for case in all_cases().iter().filter(|case| case.exact()) {
        let expected =
            case.reference.exact_gelu_greedy_tokens.as_ref().or(case.reference.greedy_tokens.as_ref());
        let Some(expected) = expected else { continue };
        let mut probe = case.probe(Device::Cpu, KvType::F32);
        let mut logits = probe.feed(&case.reference.tokens, 1).unwrap();
        let mut found = Vec::new();
        for _ in expected {
            let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32;
            found.push(best);
            logits = probe.feed(&[best], 1).unwrap();
        }
        assert_eq!(&found, expected, "{}", case.name);
    }
}

#[test]
fn the_residual_stream_agrees_after_every_block() {
    let shared = shared().map_or_else(Vec::new, |folder| cases(&folder));
    let all = shared.into_iter().chain(more_cases());
    // Cases of deep models lack this file.
    for case in all.filter(|case| case.exact() && case.folder.join("layers.f32").exists()) {
        let expected = case.floats("layers.f32");
        let found = case.probe(Device::Cpu, KvType::F32).layers(&case.reference.tokens).unwrap();
        // The reference's file also lists blocks that predict further tokens.
        let layer = found[0].len();
        assert!(expected.len() >= layer * found.len(), "{}", case.name);
        for (number, (found, expected)) in found.iter().zip(expected.chunks(layer)).enumerate() {
            let (_, square) = difference(found, expected);
            let size: f64 = expected.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / layer as f64;
            let relative = (square / size).sqrt() as f32;
            // Here the reference computes GELU from a half-precision table; the errors accumulate
            // over the blocks.
            let table = if case.name.starts_with("gemma") { 0.03 } else { 0.0 };
            let limit = case.reference.tolerance.layers_rel_rms.unwrap() + table;
            assert!(relative <= limit, "{}: block {number}: {relative} > {limit}", case.name);
        }
    }
}

/// Ollama's files rename some keys and tensors, and omit others.
#[test]
fn files_of_ollama_give_the_same() {
    let all = cases(&own());
    let case = |name: &str| all.iter().find(|case| case.name == name).unwrap();
    let same = |name: &str| Some(name.to_owned());
    let unchanged = |name: &str| name.to_owned();

    let gpt_oss = case("gpt-oss-mxfp4-f32");
    let keys = |name: &str| {
        Some(name)
            .filter(|name| !["rope.scaling.type", "expert_feed_forward_length"].contains(name))
            .map(str::to_owned)
    };
    let tensors = |name: &str| {
        let name = name.replace("attn_output", "attn_out").replace("attn_sinks.weight", "attn_sinks");
        name.replace("post_attention_norm", "ffn_norm")
    };
    gpt_oss.check_other(&gpt_oss.renamed("gptoss", &keys, &tensors, &[]));

    let gemma = case("gemma3-exact");
    let keys = |name: &str| match name {
        "rope.freq_base" => same("rope.global.freq_base"),
        "rope.freq_base_swa" => same("rope.local.freq_base"),
        // 4B and larger were trained for 131072 tokens, which implies the omitted scaling.
        "context_length"
        | "rope.scaling.type"
        | "rope.scaling.factor"
        | "attention.layer_norm_rms_epsilon" => None,
        name => same(name),
    };
    let context = [("context_length", Value::U32(131_072))];
    gemma.check_other(&gemma.renamed("gemma3", &keys, &unchanged, &context));

    let ministral = case("mistral3-yarn-exact");
    let keys = |name: &str| match name {
        "rope.scaling.yarn_beta_fast" => same("rope.scaling.beta_fast"),
        "rope.scaling.yarn_beta_slow" => same("rope.scaling.beta_slow"),
        "rope.scaling.yarn_log_multiplier" => same("rope.scaling.mscale_all_dim"),
        "attention.temperature_scale" => same("rope.scaling_beta"),
        name => same(name),
    };
    ministral.check_other(&ministral.renamed("mistral3", &keys, &unchanged, &[]));

    let glm = case("deepseek2-glm47flash-exact");
    let keys = |name: &str| Some(name).filter(|name| !name.ends_with("_mla")).map(str::to_owned);
    glm.check_other(&glm.renamed("glm4moelite", &keys, &unchanged, &[]));

    // Numbers of key and value heads per block: zero for a block without attention.
    let qwen = case("qwen35moe-fused-gate-up-exact");
    let keys = |name: &str| Some(name).filter(|name| *name != "attention.head_count_kv").map(str::to_owned);
    let tensors = |name: &str| name.replace("ssm_dt.bias", "ssm_dt");
    let heads = [("attention.head_count_kv", Value::Array(Array::U32(vec![0, 1, 0, 1])))];
    qwen.check_other(&qwen.renamed("qwen35moe", &keys, &tensors, &heads));
}

/// A twelfth architecture needs just one file, with a combination of pairing, activation and norm
/// slots that no built-in one has.
/// Its model is a Gemma with permuted rows of queries and keys and renamed tensors, so the
/// reference is Gemma's.
#[test]
fn a_new_architecture_takes_one_file() {
    const TWELFTH: &str = "
architecture: twelfth
rename:
  keys: {rope.local: rope.freq_base_swa}
  tensors: {mixer_norm: post_attention_norm}
norms: {attn_in: first_norm, attn_out: post_attention_norm, ffn_in: third_norm, ffn_out: fourth_norm}
rope: {pairing: adjacent, window_unscaled: true}
full_attention_every: 6
embedding_scale: sqrt_width
activation: gelu_tanh
";
    let case = cases(&own()).into_iter().find(|case| case.name == "gemma3-exact").unwrap();
    let mut writer = Writer::new().meta("general.architecture", "twelfth");
    for (key, value) in case.gguf.metadata().iter() {
        if let Some(key) = key.strip_prefix("gemma3.") {
            let key = if key == "rope.freq_base_swa" { "rope.local" } else { key };
            writer = writer.meta(&format!("twelfth.{key}"), value.clone());
        }
    }
    for info in case.gguf.tensors() {
        let mut data = case.gguf.data(info).to_vec();
        let name = info.name.as_str();
        if ["attn_q.", "attn_k.", "attn_q_norm.", "attn_k_norm."].iter().any(|part| name.contains(part)) {
            let row = if name.contains("norm") { 4 } else { 4 * info.shape[0] as usize };
            let old = data.clone();
            let head = 24 * row;
            for (new, old) in data.chunks_mut(head).zip(old.chunks(head)) {
                for (j, row_of_new) in new.chunks_mut(row).enumerate() {
                    let from = j / 2 + j % 2 * 12;
                    row_of_new.copy_from_slice(&old[from * row..][..row]);
                }
            }
        }
        let name = name
            .replace(".attn_norm", ".first_norm")
            .replace(".post_attention_norm", ".mixer_norm")
            .replace(".ffn_norm", ".third_norm")
            .replace(".post_ffw_norm", ".fourth_norm");
        writer = writer.tensor(&name, &info.shape, info.kind, data);
    }
    let gguf = Gguf::from_vec("twelfth", writer.bytes().unwrap()).unwrap();
    let architecture = Architecture::among([("twelfth.yaml".into(), TWELFTH.into())], &gguf).unwrap();
    let config = CacheConfig::new(64, 1, 64, Some(8));
    let decoder =
        Decoder::load_as(&gguf, &architecture, Native::with_threads(1), &config, KvType::F32).unwrap();
    let tokens = &case.reference.tokens;
    let logits =
        Pool::new(decoder, &config).forward_one(&mut Table::default(), tokens, tokens.len()).unwrap();
    case.check(&logits, case.reference.tolerance.max_abs, "as a twelfth architecture");
}
