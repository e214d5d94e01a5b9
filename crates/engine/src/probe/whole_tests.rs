//! A file is either fully understood or refused: no entry is silently left out of the computation.

use std::path::Path;

use alara_text::gguf::{Array, Gguf, TensorType, Value, Writer};

use super::{Probe, ProbeSettings};
use crate::backend::KvType;
use crate::device::Device;
use crate::offload::Offload;

const TOKENS: [u32; 12] = [3, 90, 7, 7, 251, 18, 40, 41, 199, 5, 66, 120];

fn case(name: &str) -> Gguf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch");
    Gguf::open(&folder.join(name).join("model.gguf")).unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "cases are written in place")]
fn load(writer: Writer) -> crate::Result<Vec<f32>> {
    let gguf = Gguf::from_vec("test.gguf", writer.bytes().unwrap()).unwrap();
    Probe::load(&gguf, 64, &ProbeSettings { threads: 1, ..ProbeSettings::default() })?.feed(&TOKENS, 1)
}

fn logits(writer: Writer) -> Vec<f32> {
    load(writer).unwrap()
}

/// The error's text, which must name the file.
#[track_caller]
fn refusal(writer: Writer) -> String {
    let error = load(writer).unwrap_err().to_string();
    assert!(error.starts_with("test.gguf"), "{error}");
    error
}

/// `case` with some keys of its own prefix set or replaced.
fn with(case: &Gguf, keys: &[(&str, Value)]) -> Writer {
    let prefix = case.metadata().str("general.architecture").unwrap().unwrap();
    let set = |writer: Writer, (name, value): &(&str, Value)| {
        writer.meta(&format!("{prefix}.{name}"), value.clone())
    };
    keys.iter().fold(Writer::copy_of(case), set)
}

#[test]
fn tensors_that_no_layer_reads_are_refused_by_name() {
    let llama = case("llama-exact");
    for name in [
        "blk.0.attn_sub_norm.weight",
        "blk.0.ffn_down.scale",
        "output.bias",
        "blk.0.foo.weight",
        "blk.99.attn_norm.weight",
        "token_types.weight",
        "blk.0.attn_kv_b.weight",
    ] {
        let writer = Writer::copy_of(&llama).tensor(name, &[32], TensorType::F32, vec![0; 128]);
        let error = refusal(writer);
        assert!(error.contains(&format!("the tensor `{name}`")), "{error}");
    }
    let many = (0..9).fold(Writer::copy_of(&llama), |writer, number| {
        writer.tensor(&format!("more.{number}"), &[32], TensorType::F32, vec![0; 128])
    });
    let error = refusal(many.meta("llama.logit_scale", 0.5f32));
    let expected = "the tensors `more.0`, `more.1`, `more.2`, `more.3` and 5 more and the metadata key `llama.logit_scale`";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn keys_that_no_layer_reads_are_refused_by_name() {
    let llama = case("llama-exact");
    for (name, value) in [
        ("router_logit_softcapping", Value::F32(30.0)),
        ("attention.sliding_window", Value::U32(16)),
        ("attention.sliding_window_pattern", Value::U32(6)),
        ("attention.clamp_kqv", Value::F32(8.0)),
        ("attention.max_alibi_bias", Value::F32(8.0)),
        ("attention.causal", Value::Bool(false)),
        ("logit_scale", Value::F32(0.5)),
        ("use_parallel_residual", Value::Bool(true)),
        ("rope.scaling.alpha", Value::F32(1000.0)),
        ("rope.scaling.type", Value::String("longrope".into())),
        ("rope.freq_base_swa", Value::F32(1e4)),
        ("expert_count", Value::U32(4)),
        ("swiglu_clamp_exp", Value::Array(Array::F32(vec![0.0, 7.0]))),
        ("something.new", Value::String("yes".into())),
    ] {
        let error = refusal(with(&llama, &[(name, value)]));
        assert!(error.contains(&format!("`llama.{name}`")), "{error}");
    }
    // Entries that don't concern the computation are ignored: other prefixes, and values that
    // require nothing.
    let expected = logits(Writer::copy_of(&llama));
    let nothing = with(
        &llama,
        &[
            ("attn_logit_softcapping", Value::F32(0.0)),
            ("attention.sliding_window", Value::U32(0)),
            ("attention.causal", Value::Bool(true)),
            ("use_parallel_residual", Value::Bool(false)),
            ("expert_count", Value::U32(0)),
            ("swiglu_clamp_exp", Value::Array(Array::F32(vec![0.0, 0.0]))),
        ],
    );
    assert_eq!(logits(nothing.meta("quantize.imatrix.entries_count", 7u32)), expected);
    // Six experts can't form five groups, and two groups can't supply three.
    let groups = |count, used| {
        let keys = [("expert_group_count", Value::U32(count)), ("expert_group_used_count", Value::U32(used))];
        refusal(with(&case("deepseek2-glm47flash-exact"), &keys))
    };
    assert!(groups(5, 2).contains("`deepseek2.expert_group_count`"));
    assert!(groups(2, 3).contains("`deepseek2.expert_group_used_count`"));
    // A window as long as the context hides nothing, and some files have it although the reference
    // doesn't.
    let phi = case("phi3-exact");
    let window = |tokens| with(&phi, &[("attention.sliding_window", Value::U32(tokens))]);
    assert_eq!(logits(window(4096)), logits(window(0)));
    assert!(refusal(window(2047)).contains("`phi3.attention.sliding_window`"));
}

#[test]
fn what_changes_no_logit_is_not_refused() {
    let unknown = TensorType(97);
    let gemma = case("gemma3-exact");
    let names = ["v.blk.0.attn_q.weight", "mm.input_projection.weight", "a.conv1d.1.weight", "mtp.fc.weight"];
    let tower = names.into_iter().fold(
        with(
            &gemma,
            &[
                ("vision.block_count", Value::U32(27)),
                ("vision.attention.layer_norm_epsilon", Value::F32(1e-6)),
                ("mm.tokens_per_image", Value::U32(256)),
                ("vocab_size", Value::U32(262_144)),
                ("attention.layer_norm_epsilon", Value::F32(1e-5)),
                ("attention.head_dim", Value::U32(24)),
            ],
        ),
        |writer, name| writer.tensor(name, &[32], unknown, vec![0; 64]),
    );
    assert_eq!(logits(tower), logits(Writer::copy_of(&gemma)));
    // One key under two names with contradicting values is an error.
    let error = refusal(with(&gemma, &[("attention.head_dim", Value::U32(32))]));
    assert!(error.contains("`gemma3.attention.head_dim`"), "{error}");

    // A block that predicts further tokens.
    let qwen = case("qwen35moe-fused-gate-up-exact");
    let blocks = qwen.metadata().u64("qwen35moe.block_count").unwrap().unwrap();
    let more = with(
        &qwen,
        &[
            ("block_count", Value::U32(blocks as u32 + 1)),
            ("nextn_predict_layers", Value::U32(1)),
            ("ssm.v_head_reordered", Value::Bool(true)),
            ("rope.mrope_interleaved", Value::Bool(true)),
        ],
    )
    .tensor(&format!("blk.{blocks}.nextn.eh_proj.weight"), &[32], unknown, vec![0; 64])
    .tensor(&format!("blk.{blocks}.attn_norm.weight"), &[32], unknown, vec![0; 64]);
    assert_eq!(logits(more), logits(Writer::copy_of(&qwen)));
}

#[test]
fn old_names_of_keys_are_understood() {
    let llama = case("llama-exact");
    let plain = logits(Writer::copy_of(&llama));
    let new = logits(with(&llama, &[("rope.scaling.factor", Value::F32(4.0))]));
    let old = logits(with(&llama, &[("rope.scale_linear", Value::F32(4.0))]));
    assert_eq!(old, new);
    assert_ne!(old, plain);
    // It is a factor whatever the type of scaling.
    let factor = ("rope.scaling.attn_factor", Value::F32(1.25));
    assert_ne!(logits(with(&llama, &[factor])), plain);

    // For every architecture: YaRN's bounds as written by Ollama.
    let yarn = |fast: &str, slow: &str| {
        logits(with(
            &llama,
            &[
                ("rope.scaling.type", Value::String("yarn".into())),
                ("rope.scaling.factor", Value::F32(8.0)),
                ("rope.scaling.original_context_length", Value::U32(32)),
                (fast, Value::F32(16.0)),
                (slow, Value::F32(0.5)),
            ],
        ))
    };
    let expected = yarn("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow");
    assert_eq!(yarn("rope.scaling.beta_fast", "rope.scaling.beta_slow"), expected);

    let qwen = case("qwen35moe-fused-gate-up-exact");
    let normalised = |name: &str, yes: bool| logits(with(&qwen, &[(name, Value::Bool(yes))]));
    assert_eq!(normalised("norm_top_k_prob", false), normalised("expert_weights_norm", false));
    assert_ne!(normalised("norm_top_k_prob", false), normalised("norm_top_k_prob", true));
}

#[test]
fn a_file_says_which_of_its_blocks_have_a_window() {
    let gemma = case("gemma3-exact");
    let blocks = gemma.metadata().u64("gemma3.block_count").unwrap().unwrap() as usize;
    let every = |every: usize| (1..=blocks).map(|block| block % every != 0).collect::<Vec<bool>>();
    let by = |value: Value| with(&gemma, &[("attention.sliding_window_pattern", value)]);
    let plain = logits(Writer::copy_of(&gemma));
    assert_eq!(logits(by(Value::U32(6))), plain);
    assert_eq!(logits(by(Value::Array(Array::Bool(every(6))))), plain);
    let other = logits(by(Value::U32(2)));
    assert_ne!(other, plain);
    assert_eq!(logits(by(Value::Array(Array::Bool(every(2))))), other);
    assert_eq!(logits(by(Value::Array(Array::U32(every(2).into_iter().map(u32::from).collect())))), other);
    let irregular: Vec<bool> = (0..blocks).map(|block| block != 0).collect();
    assert_ne!(logits(by(Value::Array(Array::Bool(irregular.clone())))), plain);
    let error = refusal(by(Value::Array(Array::Bool(irregular[1..].to_vec()))));
    assert!(error.contains("`gemma3.attention.sliding_window_pattern`"), "{error}");
}

/// Scales of scores, embeddings and layers' contributions in a file are applied in every
/// architecture.
#[test]
fn scales_and_caps_are_those_of_the_file() {
    let llama = case("llama-exact");
    let plain = logits(Writer::copy_of(&llama));
    let width = llama.metadata().u64("llama.embedding_length").unwrap().unwrap();
    let heads = llama.metadata().u64("llama.attention.head_count").unwrap().unwrap();
    let usual = 1.0 / (width as f32 / heads as f32).sqrt();
    for (name, same, other) in [
        ("attention.scale", usual, 0.1),
        ("embedding_scale", 1.0, 12.0),
        ("residual_scale", 1.0, 0.5),
        ("attn_logit_softcapping", 0.0, 1.5),
    ] {
        assert_eq!(logits(with(&llama, &[(name, Value::F32(same))])), plain, "{name}");
        assert_ne!(logits(with(&llama, &[(name, Value::F32(other))])), plain, "{name}");
    }
}

/// The reference has no chunks short enough for a test.
/// But if all blocks have chunks, a chunk's tokens give the same result alone as after others,
/// since rotations only encode distances.
#[test]
fn a_chunk_knows_nothing_of_those_before() {
    let llama = case("llama-exact");
    let blocks = llama.metadata().u64("llama.block_count").unwrap().unwrap() as usize;
    let writer = Writer::copy_as(&llama, "llama4");
    let everywhere = Value::Array(Array::Bool(vec![true; blocks]));
    let writer = writer.meta("llama4.attention.sliding_window_pattern", everywhere);
    let gguf = writer.meta("llama4.attention.sliding_window", 5u32).bytes().unwrap();
    let gguf = Gguf::from_vec("test.gguf", gguf).unwrap();
    let vocabulary = llama.tensor("token_embd.weight").unwrap().shape[1] as usize;
    for device in [Device::Cpu, Device::Candle] {
        let offload = Offload { device, ..Offload::cpu() };
        let settings = ProbeSettings { kv: KvType::F32, offload, threads: 1, ..ProbeSettings::default() };
        let feed =
            |tokens: &[u32]| Probe::load(&gguf, 64, &settings).unwrap().feed(tokens, tokens.len()).unwrap();
        let all = feed(&TOKENS);
        for chunk in [5..10, 10..12] {
            let alone = feed(&TOKENS[chunk.clone()]);
            let after = &all[chunk.start * vocabulary..chunk.end * vocabulary];
            let off = alone.iter().zip(after).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 1e-3, "{device:?} {chunk:?}: {off}");
        }
        let shorter = feed(&TOKENS[4..10]);
        let last = &all[9 * vocabulary..10 * vocabulary];
        let off = shorter[5 * vocabulary..].iter().zip(last).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off > 1e-2, "one token earlier, chunks are others: {off}");
    }
}

/// Rotation divisors come in pairs, selected by the length of sequences.
#[test]
fn one_set_of_divisors_alone_is_refused() {
    let phi = case("phi3-exact");
    let heads = phi.metadata().u64("phi3.attention.head_count").unwrap().unwrap();
    let head = phi.metadata().u64("phi3.embedding_length").unwrap().unwrap() / heads;
    let pairs = phi.metadata().u64("phi3.rope.dimension_count").unwrap().unwrap_or(head) / 2;
    let factors = |name: &str, by: f32| {
        let data = by.to_le_bytes().repeat(pairs as usize);
        (format!("rope_factors_{name}.weight"), data)
    };
    let with = |all: &[(String, Vec<u8>)], original: u32| {
        let writer = with(&phi, &[("rope.scaling.original_context_length", Value::U32(original))]);
        all.iter()
            .fold(writer, |writer, (name, data)| writer.tensor(name, &[pairs], TensorType::F32, data.clone()))
    };
    let [short, long] = [factors("short", 1.0), factors("long", 4.0)];
    let error = refusal(with(std::slice::from_ref(&long), 16));
    assert!(error.contains("`rope_factors_short.weight`"), "{error}");
    let both = [short, long];
    let plain = logits(Writer::copy_of(&phi));
    assert_eq!(logits(with(&both, 64)), plain, "a context of 64 tokens is not beyond 64");
    assert_ne!(logits(with(&both, 63)), plain);
}

#[test]
fn the_last_blocks_share_keys_and_values_of_blocks_that_see_as_much() {
    let gemma = case("gemma4-tiny-exact");
    let error = refusal(with(&gemma, &[("attention.shared_kv_layers", Value::U32(3))]));
    // The first full-attention block would then be one of those without its own.
    assert!(error.contains("`gemma4.attention.shared_kv_layers`"), "{error}");
    let error = refusal(with(&gemma, &[("attention.shared_kv_layers", Value::U32(1))]));
    assert!(error.contains("`blk.3.attn_k.weight`"), "{error}");
    let few = Value::Array(Array::U32(vec![2, 2, 1]));
    assert!(refusal(with(&gemma, &[("attention.head_count_kv", few)])).contains("3 blocks of 5"));
}

/// The weighting of experts is unknown in an architecture whose reference has none.
#[test]
fn experts_of_unknown_weighting_are_refused() {
    let moe = case("qwen35moe-fused-gate-up-exact");
    let writer = Writer::copy_as(&moe, "qwen35");
    assert!(refusal(writer).contains("how experts are weighed"));
}

/// Blocks may lack a token mixer or a feed-forward layer if the file declares it, but not both, and
/// not silently.
#[test]
fn a_block_that_lacks_a_layer_without_a_word_is_refused() {
    let nemotron = case("nemotron_h-tiny-exact");
    let lengths = |lengths: [u32; 5]| {
        with(&nemotron, &[("feed_forward_length", Value::Array(Array::U32(lengths.to_vec())))])
    };
    assert_eq!(logits(lengths([0, 48, 0, 0, 48])), logits(Writer::copy_of(&nemotron)));
    let error = refusal(lengths([0, 0, 0, 0, 48]));
    assert!(error.contains("`nemotron_h.feed_forward_length`") && error.contains("block 1"), "{error}");
    let error = refusal(lengths([48, 48, 0, 0, 48]));
    assert!(error.contains("`blk.0.ffn_down.weight`"), "{error}");
    let error = refusal(with(&nemotron, &[("attention.head_count_kv", Value::U32(2))]));
    assert!(error.contains("`blk.1.attn_"), "{error}");
}
