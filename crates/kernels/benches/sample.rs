//! Sampling from all logits of a vocabulary, for every instruction set except the scalar one.
#![allow(missing_docs)] // What the macros define.

use alara_kernels::{Isa, argmax, softmax_terms};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// The size of Qwen3's vocabulary.
/// An element is a logit.
fn of_all(criterion: &mut Criterion) {
    let count = 151_936;
    let noise = (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 20) as f32);
    let (logits, mut terms, mut sums): (Vec<f32>, _, _) = (noise.collect(), vec![0.0; count], Vec::new());
    for isa in Isa::available().filter(|&isa| isa != Isa::SCALAR) {
        let mut group = criterion.benchmark_group("sample");
        group.throughput(Throughput::Elements(count as u64)).sample_size(10);
        group.bench_function(format!("argmax, {}", isa.name()), |bencher| {
            bencher.iter(|| argmax(isa, &logits));
        });
        group.bench_function(format!("softmax terms, {}", isa.name()), |bencher| {
            bencher.iter(|| softmax_terms(isa, &logits, 16.0, 0.8, &mut terms, &mut sums));
        });
    }
}

criterion_group!(benches, of_all);
criterion_main!(benches);
