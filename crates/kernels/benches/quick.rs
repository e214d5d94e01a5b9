use alara_kernels::{Activations, Cpu, Format, Isa, Rows, Threads, matmul};
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let (out, width) = (3072usize, 1024usize);
    let threads: usize = args.get(2).map_or(2, |t| t.parse().unwrap());
    for format in [Format::Q4_K, Format::Q6_K, Format::Q8_0, Format::MXFP4] {
        if !args.is_empty() && args[0] != "all" && format.name() != args[0] { continue }
        let bytes = out * format.row_bytes(width).unwrap();
        let n = (128 << 20) / bytes;
        let mut w: Vec<u8> = (0..n * bytes).map(|i| (i.wrapping_mul(2654435761) >> 7) as u8 & 0x3f).collect();
        if format == Format::MXFP4 { for b in w.chunks_mut(17) { b[0] = 120 + (b[0] & 7); } }
        for tokens in args.get(3).map_or(vec![1usize, 4, 8, 16, 64, 512], |t| vec![t.parse().unwrap()]) {
            let x: Vec<f32> = (0..tokens * width).map(|i| (i % 17) as f32 - 8.0).collect();
            let mut y = vec![0.0; tokens * out];
            print!("{} x{tokens}:", format.name());
            for isa in Isa::available() {
                if isa == Isa::SCALAR { continue }
                if args.len() > 1 && args[1] != "all" && isa.name() != args[1] { continue }
                let cpu = Cpu::new(isa, Threads::new(threads));
                let mut a = Activations::default();
                let (mut best, mut prep, mut second) = (f64::MAX, f64::MAX, f64::MAX);
                let reps = if args.len() > 3 { 3000 } else if tokens >= 64 { 12 } else { 60 };
                for i in 0..reps {
                    let t = Instant::now();
                    a.prepare(&cpu, format, &x, width);
                    prep = prep.min(t.elapsed().as_secs_f64());
                    let t = Instant::now();
                    matmul(&cpu, Rows { format, bytes: &w[i % n * bytes..][..bytes], width }, &mut a, &mut y);
                    best = best.min(t.elapsed().as_secs_f64());
                    let t = Instant::now();
                    matmul(&cpu, Rows { format, bytes: &w[(i + 1) % n * bytes..][..bytes], width }, &mut a, &mut y);
                    second = second.min(t.elapsed().as_secs_f64());
                }
                let ops = 2.0 * (tokens * out * width) as f64;
                print!("  {} {:.0} GOPS ({:.1} GB/s) [prep {:.0}us lay {:.0}us mul {:.0}us]", isa.name(), ops / second / 1e9, bytes as f64 / second / 1e9, prep * 1e6, (best - second) * 1e6, second * 1e6);
            }
            println!();
        }
    }
}
