use proptest::prelude::*;

use super::*;
use crate::{Isa, ThreadPool, dequantize};

/// The positions of a block's half-precision numbers: its scale, and the scale of minima.
fn halves(format: Format) -> &'static [usize] {
    match format {
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 | Format::IQ4_NL | Format::IQ4_XS | Format::F16 => &[0],
        Format::IQ1_S | Format::IQ2_XXS | Format::IQ2_XS | Format::IQ2_S => &[0],
        Format::IQ3_XXS | Format::IQ3_S | Format::Q1_0 => &[0],
        Format::TQ1_0 => &[52],
        Format::TQ2_0 => &[64],
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q6_K => &[208],
        Format::F32 | Format::BF16 | Format::MXFP4 | Format::NVFP4 | Format::IQ1_M => &[],
    }
}

/// Rows of random blocks with finite scales.
/// With `extreme` all quants are the largest or smallest.
fn weights(format: Format, rows: usize, width: usize, extreme: Option<u8>, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = vec![0; rows * format.row_bytes(width).unwrap()];
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        block.fill_with(|| extreme.unwrap_or_else(|| random.next() as u8));
        // Halves from 0x14.. to 0x2f.. are 2^-10 to 2^-4.
        for &at in halves(format) {
            block[at + 1] = ((0x14 + random.next() % 0x1c) | ((random.next() % 2) << 7)) as u8;
        }
        match format {
            Format::F32 => block.copy_from_slice(&random.float().to_le_bytes()),
            Format::BF16 => block.copy_from_slice(&random.float().to_le_bytes()[2..]),
            // The first two are subnormal.
            Format::MXFP4 => {
                block[0] = [0, 1, 2, 120, 121, 122, 123, 124, 125, 126][random.next() as usize % 10];
            }
            // The upper bits of the super-block scale.
            Format::IQ1_M => block[55] = block[55] & 15 | ((2 + random.next() % 2 * 8) << 4) as u8,
            _ => {}
        }
    }
    bytes
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.max(1);
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    /// A number around zero, of very different magnitudes.
    fn float(&mut self) -> f32 {
        let mantissa = self.next() as f32 / (1u64 << 31) as f32 - 1.0;
        mantissa * ((self.next() % 9) as f32 - 6.0).exp2()
    }
}

fn product(cpu: &Cpu, w: WeightMatrix, x: &[f32]) -> Vec<f32> {
    let mut activations = Activations::default();
    activations.prepare(cpu, w.format, x, w.width);
    let mut y = vec![f32::NAN; activations.rows() * w.rows()];
    matmul(cpu, &mut activations, &mut [Product::new(w, &mut y)]);
    y
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|y| y.to_bits()).collect()
}

#[derive(Debug, Clone)]
struct Case {
    format: Format,
    rows: usize,
    width: usize,
    tokens: usize,
    extreme: Option<u8>,
    loud: bool,
    seed: u64,
}

impl Case {
    fn x(&self) -> Vec<f32> {
        let mut random = Random(self.seed ^ 0xabcd);
        // With equal magnitudes all quants are 127 or -127.
        let loud = |random: &mut Random| if random.next().is_multiple_of(8) { 3.0 } else { -3.0 };
        (0..self.tokens * self.width)
            .map(|_| if self.loud { loud(&mut random) } else { random.float() })
            .collect()
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let format = proptest::sample::select(Format::ALL.to_vec());
    let extreme =
        prop_oneof![4 => Just(None), 1 => Just(Some(0x00)), 1 => Just(Some(0xff)), 1 => Just(Some(0x80))];
    // Often whole groups of rows and few tokens, also after a block, since these have special
    // paths.
    let rows = prop_oneof![1..70usize, (1..5usize).prop_map(|groups| 16 * groups)];
    let shape = (rows, 1..40usize, prop_oneof![1..50usize, 2..14usize, 17..25usize]);
    (format, shape, extreme, any::<bool>(), any::<u64>()).prop_map(
        |(format, (rows, blocks, tokens), extreme, loud, seed)| {
            let blocks = match format.block_len() {
                1 => blocks * 7, // rarely whole lanes
                32 => blocks,
                _ => 1 + blocks / 4,
            };
            Case { format, rows, width: blocks * format.block_len(), tokens, extreme, loud, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// A row's result is bitwise independent of the instruction set, the threads and the other rows
    /// in the call.
    #[test]
    fn rows_do_not_depend_on_company(case in cases(), threads in 1..4usize) {
        let bytes = weights(case.format, case.rows, case.width, case.extreme, case.seed);
        let w = WeightMatrix { format: case.format, bytes: &bytes, width: case.width };
        let x = case.x();
        let alone = Cpu::new(Isa::SCALAR, ThreadPool::new(1));
        let expected: Vec<f32> = x.chunks_exact(case.width).flat_map(|x| product(&alone, w, x)).collect();
        for isa in Isa::available() {
            let cpu = Cpu::new(isa, ThreadPool::new(threads));
            prop_assert_eq!(bits(&product(&cpu, w, &x)), bits(&expected), "{:?}", isa);
        }
    }

    /// Products match those of the numbers that weights and activations represent, up to the
    /// rounding of f32 sums.
    #[test]
    fn products_are_right(case in cases()) {
        let bytes = weights(case.format, case.rows, case.width, case.extreme, case.seed);
        let w = WeightMatrix { format: case.format, bytes: &bytes, width: case.width };
        let cpu = Cpu::new(Isa::best(), ThreadPool::new(1));
        let mut x = Activations::default();
        x.prepare(&cpu, case.format, &case.x(), case.width);
        let mut y = vec![0.0; case.tokens * case.rows];
        matmul(&cpu, &mut x, &mut [Product::new(w, &mut y)]);
        let mut numbers = vec![0.0; case.rows * case.width];
        dequantize(case.format, &bytes, &mut numbers);
        // The terms of a difference may be larger than the result.
        let mut without_minima = bytes.clone();
        if let [_, at] = *halves(case.format) {
            without_minima.chunks_exact_mut(case.format.block_bytes()).for_each(|block| block[at..at + 2].fill(0));
        }
        let mut parts = vec![0.0; numbers.len()];
        dequantize(case.format, &without_minima, &mut parts);
        for (token, y) in y.chunks_exact(case.rows).enumerate() {
            let x = x.numbers(token);
            for (row, &y) in y.iter().enumerate() {
                let [w, parts] = [&numbers, &parts].map(|all| &all[row * case.width..][..case.width]);
                let expected: f64 = w.iter().zip(&x).map(|(&w, x)| f64::from(w) * x).sum();
                let largest = w.iter().chain(parts).fold(0.0, |largest: f32, w| largest.max(w.abs()));
                let room = 2e-6 * f64::from(largest) * x.iter().map(|x| x.abs()).sum::<f64>() + 1e-30;
                prop_assert!((f64::from(y) - expected).abs() <= room, "{y}, not {expected} +- {room}");
            }
        }
    }

    /// Each product in a call gives the same result as alone, also with selected rows, in any
    /// order, or none.
    #[test]
    fn products_do_not_depend_on_company(case in cases(), threads in 1..3usize) {
        let bytes = weights(case.format, case.rows, case.width, case.extreme, case.seed);
        let w = WeightMatrix { format: case.format, bytes: &bytes, width: case.width };
        let row_bytes = bytes.len() / case.rows;
        let fewer = WeightMatrix { bytes: &bytes[..case.rows.div_ceil(2) * row_bytes], ..w };
        for isa in Isa::available() {
            let cpu = Cpu::new(isa, ThreadPool::new(threads));
            let all = product(&cpu, w, &case.x());
            let mut x = Activations::default();
            x.prepare(&cpu, case.format, &case.x(), case.width);
            // Every third row twice, in reverse.
            let rows: Vec<u32> = (0..case.tokens as u32).step_by(3).rev().flat_map(|row| [row, row]).collect();
            let (mut whole, mut some) = (vec![7.0; all.len()], vec![7.0; rows.len() * case.rows]);
            let mut half = vec![7.0; case.tokens * fewer.rows()];
            matmul(&cpu, &mut x, &mut [
                Product::new(w, &mut whole),
                Product::of_rows(w, &[], &mut []),
                Product::of_rows(w, &rows, &mut some),
                Product::new(fewer, &mut half),
            ]);
            prop_assert_eq!(&whole, &all);
            for (row, y) in rows.iter().zip(some.chunks_exact(case.rows)) {
                prop_assert_eq!(y, &all[*row as usize * case.rows..][..case.rows]);
            }
            for (y, all) in half.chunks_exact(fewer.rows()).zip(all.chunks_exact(case.rows)) {
                prop_assert_eq!(y, &all[..fewer.rows()]);
            }
        }
    }
}

#[test]
#[should_panic(expected = "row 2 of 2 of activations")]
fn a_row_is_in_range() {
    let cpu = Cpu::new(Isa::SCALAR, ThreadPool::new(1));
    let mut x = Activations::default();
    x.prepare(&cpu, Format::F32, &[1.0; 4], 2);
    let w = WeightMatrix { format: Format::F32, bytes: &[0; 8], width: 2 };
    matmul(&cpu, &mut x, &mut [Product::of_rows(w, &[0, 2], &mut [0.0; 2])]);
}

#[test]
#[should_panic(expected = "prepared for other weights than Q4_K")]
fn activations_suit_the_weights() {
    let cpu = Cpu::new(Isa::SCALAR, ThreadPool::new(1));
    let mut x = Activations::default();
    x.prepare(&cpu, Format::Q8_0, &[1.0; 256], 256);
    let w = WeightMatrix { format: Format::Q4_K, bytes: &[0; 144], width: 256 };
    matmul(&cpu, &mut x, &mut [Product::new(w, &mut [0.0])]);
}
