//! Compares the estimate with actual allocations, on tiny models of every kind.

use std::path::Path;

use alara_text::gguf::{TensorType, Writer};

use super::*;

fn model(case: &str) -> Gguf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch");
    Gguf::open(&folder.join(case).join("model.gguf")).unwrap()
}

/// The model with `change` applied to the name, shape, type and bytes of each of its tensors.
fn changed(gguf: &Gguf, change: impl Fn(&str, &mut Vec<u64>, &mut TensorType, &mut Vec<u8>)) -> Gguf {
    let metadata = gguf.metadata().iter();
    let mut writer = metadata.fold(Writer::new(), |writer, (key, value)| writer.meta(key, value.clone()));
    for info in gguf.tensors() {
        let (mut shape, mut kind, mut bytes) = (info.shape.clone(), info.kind, gguf.data(info).to_vec());
        change(&info.name, &mut shape, &mut kind, &mut bytes);
        writer = writer.tensor(&info.name, &shape, kind, bytes);
    }
    Gguf::from_vec("changed", writer.bytes().unwrap()).unwrap()
}

#[test]
fn the_estimated_cache_is_what_is_allocated() {
    // Grouped, windowed, latent, delta, windows with sinks and experts, and blocks that share keys
    // and values.
    for case in [
        "qwen3-exact",
        "gemma3-exact",
        "deepseek2-glm47flash-exact",
        "qwen35moe-fused-gate-up-exact",
        "gpt-oss-mxfp4-f32",
        "gemma4-tiny-exact",
    ] {
        let gguf = model(case);
        let architecture = Architecture::of(&gguf).unwrap();
        for (context, sequences) in [(1, 1), (100, 1), (700, 3)] {
            for kv in [KvType::F32, KvType::F16, KvType::Q8_0] {
                let config = cache_config(
                    &gguf,
                    &architecture,
                    (context, sequences, sequences),
                    kv,
                    (None, SNAPSHOT_BYTES),
                )
                .unwrap();
                let decoder = Decoder::load(&gguf, Native::with_threads(1), &config, kv);
                let found = MemoryEstimate::of(&gguf, context, sequences, kv);
                match (decoder, found) {
                    (Ok(decoder), Ok(found)) => {
                        assert_eq!((found.kv, found.state), decoder.allocated(), "{case}");
                    }
                    // Rows that aren't multiples of q8_0 blocks: both refuse them.
                    (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
                    (one, other) => panic!("{case}: {one:?} {other:?}"),
                }
            }
        }
    }
}

#[test]
fn weights_are_the_tensors_that_are_used() {
    let all = |gguf: &Gguf| gguf.tensors().map(|info| info.bytes).sum::<u64>();
    let of = |gguf: &Gguf| MemoryEstimate::of(gguf, 64, 1, KvType::F16).unwrap();
    let tied = model("gemma3-exact");
    assert_eq!(of(&tied).weights, all(&tied));
    // An embedding table that is read by rows counts as the rows.
    let untied = model("llama-exact");
    assert!(of(&untied).weights <= all(&untied));

    // Neither kind nor type of an unused tensor matters.
    let unknown = TensorType(97);
    let writer = Writer::copy_of(&tied)
        .tensor("v.blk.0.attn_q.weight", &[32], unknown, vec![0; 64])
        .tensor("mm.input_projection.weight", &[32], unknown, vec![0; 64])
        .tensor("a.conv1d.1.weight", &[32], unknown, vec![0; 64])
        .tensor("mtp.fc.weight", &[32], unknown, vec![0; 64]);
    let with_tower = Gguf::from_vec("tower", writer.bytes().unwrap()).unwrap();
    assert_eq!(of(&with_tower), of(&tied));
}

#[test]
fn a_model_that_can_not_fit_is_refused_with_the_numbers() {
    let estimate = MemoryEstimate { weights: 5 << 30, kv: 8 << 30, state: 0, working: 300 << 20 };
    let check = |available: u64, expected: &str| {
        let error = estimate.check("big.gguf", 65536, available).unwrap_err().to_string();
        assert_eq!(error, expected);
    };
    assert!(estimate.check("big.gguf", 65536, estimate.total()).is_ok());
    check(
        8 << 30,
        "big.gguf needs 13.3 GiB (5.0 GiB weights, 8.0 GiB KV cache, 300.0 MiB for computing) at a context of 65536 tokens, \
         but 8.0 GiB can be had; take a smaller context (--ctx) or keep keys and values in eight bits (--kv q8_0)",
    );
    check(
        3 << 30,
        "big.gguf needs 13.3 GiB (5.0 GiB weights, 8.0 GiB KV cache, 300.0 MiB for computing) at a context of 65536 tokens, \
         but 3.0 GiB can be had; take a file of a smaller quantization, or a smaller model",
    );
    // The largest possible request.
    let found = MemoryEstimate::of(&model("qwen3-exact"), usize::MAX, usize::MAX, KvType::F32).unwrap();
    assert_eq!(found.total(), u64::MAX);
}

#[test]
fn the_engine_refuses_before_it_loads() {
    let options = crate::Options { context: Some(64), memory: Some(1 << 20), ..Default::default() };
    // The fixture has no chat template either: memory is checked first.
    let error = crate::Engine::load(&model("qwen3-exact"), &options).err().unwrap();
    assert!(
        matches!(&error, Error::OutOfMemory { available, context: 64, .. } if available == "1.0 MiB"),
        "{error}"
    );
}

#[test]
fn what_is_wrong_with_a_tensor_is_said() {
    let check = |gguf: &Gguf, expected: &str| {
        let error = MemoryEstimate::of(gguf, 64, 1, KvType::F16).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    let gguf = model("qwen3-exact");
    check(
        &changed(&gguf, |name, shape, kind, bytes| {
            if name == "blk.1.ffn_down.weight" {
                *kind = TensorType::Q8_1;
                bytes.resize(shape.iter().product::<u64>() as usize / 32 * 36, 0);
            }
        }),
        "changed: tensor `blk.1.ffn_down.weight` is of type Q8_1, which can't be computed with; download a Q4_K_M file of \
         the model",
    );
    let rows = gguf.tensor("blk.0.attn_k.weight").unwrap().shape.clone();
    let error = format!(
        "changed: tensor `blk.0.attn_k.weight` has the shape [{}, {}], expected {rows:?} (innermost first)",
        rows[0],
        rows[1] / 2
    );
    check(
        &changed(&gguf, |name, shape, _, bytes| {
            if name == "blk.0.attn_k.weight" {
                shape[1] /= 2;
                bytes.truncate(bytes.len() / 2);
            }
        }),
        &error,
    );
}

#[test]
fn snapshots_fill_their_budget() {
    let check = |case: &str, bytes: u64, expected: usize| {
        let gguf = model(case);
        let architecture = Architecture::of(&gguf).unwrap();
        let config = cache_config(&gguf, &architecture, (4096, 2, 2), KvType::F16, (None, bytes)).unwrap();
        // Two sequences have a state each, and one more for rewinding rejected draft tokens.
        assert_eq!(config.slots - 4, expected, "{case}");
    };
    check("qwen35moe-fused-gate-up-exact", 0, 4);
    check("qwen35moe-fused-gate-up-exact", 1 << 40, 64);
    // Two delta layers of a tiny model.
    let gguf = model("qwen35moe-fused-gate-up-exact");
    let (_, state) =
        Decoder::load(&gguf, Native::with_threads(1), &CacheConfig::new(1, 1, 1, None), KvType::F16)
            .unwrap()
            .allocated();
    check("qwen35moe-fused-gate-up-exact", state / 4 * 9, 9);
    check("gemma3-exact", 1 << 40, 64);
}
