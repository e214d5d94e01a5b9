//! Attention with a long past: decode and prefill over caches in f16 and q8_0, for every
//! instruction set except the scalar one.
#![allow(missing_docs)] // What the macros define.

use alara_kernels::{AttentionShape, AttentionSpan, Cpu, Isa, KvFormat, KvRows, ThreadPool, attend};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Slots per block.
const BLOCK: usize = 16;

/// A call: several rows of one sequence after `past` others.
struct Case {
    name: &'static str,
    shape: AttentionShape,
    format: KvFormat,
    past: usize,
    rows: usize,
}

fn shape(heads: usize, kv_heads: usize, key_width: usize, value_width: usize) -> AttentionShape {
    let scale = 1.0 / (key_width as f32).sqrt();
    let values_in_keys = value_width < key_width;
    AttentionShape {
        heads,
        kv_heads,
        key_width,
        value_width,
        values_in_keys,
        scale,
        softcap: None,
        window: None,
        chunked: false,
    }
}

/// The heads of Qwen3-0.6B and of DeepSeek-V2-Lite.
fn cases() -> Vec<Case> {
    let case = |name, format, past, rows| Case { name, shape: shape(16, 8, 128, 128), format, past, rows };
    vec![
        case("decode 4096 f16", KvFormat::F16, 4095, 1),
        case("decode 4096 q8_0", KvFormat::Q8_0, 4095, 1),
        case("decode 512 f16", KvFormat::F16, 511, 1),
        case("prefill 512 after 0", KvFormat::F16, 0, 512),
        case("prefill 512 after 4096", KvFormat::F16, 4096, 512),
        Case { shape: shape(16, 1, 576, 512), ..case("latent decode 1024 f16", KvFormat::F16, 1023, 1) },
    ]
}

fn noise(len: usize) -> Vec<f32> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn bench(criterion: &mut Criterion) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for Case { name, shape, format, past, rows } in cases() {
        let mut group = criterion.benchmark_group(name);
        let AttentionShape { heads, kv_heads, key_width, value_width, .. } = shape;
        let blocks: Vec<u32> = (0..(past + rows).div_ceil(BLOCK) as u32).collect();
        let slots = blocks.len() * BLOCK;
        let cached = |width: usize| {
            let mut cached = KvRows::zeros(slots, width, format).expect("widths are whole runs");
            cached.write(&Cpu::new(Isa::best(), ThreadPool::new(1)), 0, &noise(slots * width));
            cached
        };
        let keys = cached(kv_heads * key_width);
        let values = (!shape.values_in_keys).then(|| cached(kv_heads * value_width));
        let q = noise(rows * heads * key_width);
        let mut y = vec![0.0; rows * heads * value_width];
        let pairs: usize = (past + 1..=past + rows).sum();
        group.throughput(match rows {
            1 => Throughput::Bytes((keys.bytes() + values.as_ref().map_or(0, KvRows::bytes)) as u64),
            _ => Throughput::Elements((2 * pairs * heads * (key_width + value_width)) as u64),
        });
        group.sample_size(10);
        for isa in Isa::available().filter(|&isa| isa != Isa::SCALAR) {
            let cpu = Cpu::new(isa, ThreadPool::new(threads));
            let spans = [AttentionSpan { rows, past, blocks: &blocks }];
            group.bench_function(isa.name(), |bencher| {
                bencher.iter(|| {
                    attend(&cpu, &shape, &keys, values.as_ref(), BLOCK, &spans, None, &q, &mut y);
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
