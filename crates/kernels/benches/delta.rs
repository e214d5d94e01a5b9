//! The delta rule, for every instruction set except the scalar one.
#![allow(missing_docs)] // What the macros define.

use alara_kernels::{Cpu, DeltaForm, DeltaShape, Isa, ThreadPool, delta};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn noise(len: usize) -> Vec<f32> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn cpus() -> impl Iterator<Item = Cpu> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let isas = Isa::available().filter(|&isa| isa != Isa::SCALAR);
    isas.map(move |isa| Cpu::new(isa, ThreadPool::new(threads)))
}

/// The heads of Qwen3.5-0.8B, row by row.
/// An element is one number of a state, per row that passes through it.
fn recurrent(criterion: &mut Criterion) {
    let shape = DeltaShape {
        key_heads: 16,
        value_heads: 16,
        grouped: false,
        key_width: 128,
        value_width: 128,
        kernel: 4,
        epsilon: 1e-6,
    };
    let (heads, size) = (shape.value_heads, shape.key_width * shape.value_width);
    for rows in [1, 512] {
        let mut group = criterion.benchmark_group(format!("delta, rows: {rows}"));
        group.throughput(Throughput::Elements((rows * heads * size) as u64)).sample_size(10);
        let qkv = noise(rows * 3 * heads * 128);
        let (gates, a, dt) = (noise(rows * heads), vec![-1.0; heads], noise(heads));
        let (mut state, mut y) = (noise(heads * size), vec![0.0; rows * heads * 128]);
        for cpu in cpus() {
            group.bench_function(cpu.isa.name(), |bencher| {
                bencher.iter(|| {
                    let form = DeltaForm::Recurrent;
                    delta(&cpu, &shape, form, &qkv, &gates, &gates, &a, &dt, &mut state, &mut y);
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, recurrent);
criterion_main!(benches);
