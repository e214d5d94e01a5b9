//! Products of quantized weights with 1 to 512 rows of activations, on every instruction set of
//! this machine.

use std::cell::LazyCell;

use alara_kernels::{Activations, Cpu, Format, Isa, Product, ThreadPool, WeightMatrix, matmul};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Rows, and numbers per row: a feed-forward matrix of Qwen3-0.6B.
const OUT: usize = 3072;
const WIDTH: usize = 1024;

/// Some formats of each kind.
const FORMATS: [Format; 11] = [
    Format::Q4_K,
    Format::Q6_K,
    Format::Q8_0,
    Format::MXFP4,
    Format::F16,
    Format::Q2_K,
    Format::Q3_K,
    Format::IQ2_XS,
    Format::IQ2_S,
    Format::IQ3_XXS,
    Format::IQ3_S,
];

fn products(c: &mut Criterion) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for format in FORMATS {
        // Many matrices, so that no product finds its weights in a cache, as in a model.
        let bytes = OUT * format.row_bytes(WIDTH).unwrap_or(0);
        let matrices = (256 << 20) / bytes;
        let weights = LazyCell::new(|| -> Vec<u8> {
            (0..matrices * bytes).map(|i| (i.wrapping_mul(2654435761) >> 7) as u8 & 0xbf).collect()
        });
        for tokens in [1, 4, 16, 64, 512] {
            let x: Vec<f32> = (0..tokens * WIDTH).map(|i| (i % 17) as f32 - 8.0).collect();
            let mut y = vec![0.0; tokens * OUT];
            let mut group = c.benchmark_group(format!("{} x{tokens}", format.name()));
            group.sample_size(10).throughput(Throughput::Elements((2 * tokens * OUT * WIDTH) as u64));
            for isa in Isa::available().filter(|&isa| isa != Isa::SCALAR || tokens == 1) {
                let cpu = Cpu::new(isa, ThreadPool::new(threads));
                let mut activations = Activations::default();
                let mut next = 0;
                group.bench_function(BenchmarkId::from_parameter(isa.name()), |b| {
                    b.iter(|| {
                        next = (next + 1) % matrices;
                        activations.prepare(&cpu, format, &x, WIDTH);
                        let w =
                            WeightMatrix { format, bytes: &weights[next * bytes..][..bytes], width: WIDTH };
                        matmul(&cpu, &mut activations, &mut [Product::new(w, &mut y)]);
                    });
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, products);
criterion_main!(benches);
