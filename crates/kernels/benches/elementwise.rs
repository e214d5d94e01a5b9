//! The elementwise work between products, for every instruction set except the scalar one.
#![allow(missing_docs)] // What the macros define.

use alara_kernels::{
    Activations, Cpu, Format, Gate, Isa, ThreadPool, add, add_row, conv, gated, rms_norm, rope, scale_rows,
    weigh_rows,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const ROWS: usize = 512;
const WIDTH: usize = 3072;

fn noise(len: usize) -> Vec<f32> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn elementwise(criterion: &mut Criterion) {
    let (x, up, weight) = (noise(ROWS * WIDTH), noise(ROWS * WIDTH), noise(WIDTH));
    let (taps, mut history) = (noise(4 * WIDTH), noise(3 * WIDTH));
    // Heads of 128, with all pairs rotated.
    let (cos, sin) = (noise(ROWS * 64), noise(ROWS * 64));
    // Two rows of `x` for each of `y`.
    let (ones, each): (_, Vec<u32>) = (vec![1.0; ROWS], (0..2 * ROWS as u32).map(|i| i / 2).collect());
    let halves = vec![0.5; 2 * ROWS];
    let mut y = vec![0.0; ROWS * WIDTH];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut group = criterion.benchmark_group(format!("{ROWS} rows of {WIDTH}"));
    group.throughput(Throughput::Elements((ROWS * WIDTH) as u64)).sample_size(10);
    for isa in Isa::available().filter(|&isa| isa != Isa::SCALAR) {
        let cpu = Cpu::new(isa, ThreadPool::new(threads));
        let mut bench = |kernel: &str, work: &mut dyn FnMut(&mut [f32])| {
            y.fill(0.5);
            group.bench_function(format!("{kernel} {}", isa.name()), |bencher| bencher.iter(|| work(&mut y)));
        };
        bench("norm", &mut |y| rms_norm(&cpu, &x, &weight, 1e-6, y));
        bench("silu gate", &mut |y| gated(&cpu, &x, &up, y, Gate::Silu));
        bench("rope", &mut |y| rope(&cpu, y, WIDTH, 128, &cos, &sin, 64, false));
        bench("conv", &mut |y| conv(&cpu, &taps, None, 4, WIDTH, &mut history, &x, y));
        bench("add", &mut |y| add(&cpu, y, &x));
        bench("add a row", &mut |y| add_row(&cpu, y, &weight));
        bench("scale", &mut |y| scale_rows(&cpu, y, WIDTH, &ones));
        bench("weigh two", &mut |y| weigh_rows(&cpu, &x, WIDTH, &each, &halves, y));
        let mut activations = Activations::default();
        bench("round for Q8_0", &mut |_| activations.prepare(&cpu, Format::Q8_0, &x, WIDTH));
        bench("round for Q4_K", &mut |_| activations.prepare(&cpu, Format::Q4_K, &x, WIDTH));
    }
    group.finish();
}

criterion_group!(benches, elementwise);
criterion_main!(benches);
