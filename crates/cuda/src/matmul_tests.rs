//! Compares products with the weights decoded by the CPU's codecs.

use proptest::prelude::*;
use proptest::sample::select;

use crate::testing::{assert_close, device, devices, floats, noise, to_floats, words};
use crate::twin::Host;
use crate::{
    Device, Format, Grouped, Memory, Operands, Weights, bucket, matmul, max_tiles, multiplies, widen,
};

/// The formats with kernels.
fn formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|&format| multiplies(format))
}

/// Random bytes as weights, except for the scales, which are kept moderate.
fn weights(format: Format, rows: usize, width: usize, seed: u64) -> Vec<u8> {
    let len = format.row_bytes(width).unwrap() * rows;
    let mut bytes: Vec<u8> = noise(seed, len).iter().map(|x| (x * 128.0) as i8 as u8).collect();
    let scales = noise(seed + 1, 2 * len / format.block_bytes());
    for (at, block) in bytes.chunks_exact_mut(format.block_bytes()).enumerate() {
        let half = |x: f32| half::f16::from_f32(0.01 * x).to_le_bytes();
        let mut put =
            |place: usize, nth: usize| block[place..place + 2].copy_from_slice(&half(scales[2 * at + nth]));
        match format {
            Format::MXFP4 => block[0] = 120 + (at % 5) as u8,
            Format::Q2_K => {
                put(80, 0);
                put(82, 1);
            }
            Format::Q3_K => put(108, 0),
            Format::TQ1_0 => put(52, 0),
            Format::TQ2_0 => put(64, 0),
            // The upper bits of the super-block scale, or exponents.
            Format::IQ1_M => block[55] = block[55] & 0x8f | 0x20,
            Format::NVFP4 => block[..4].iter_mut().for_each(|scale| *scale = *scale & 15 | 0x30),
            Format::Q6_K => put(208, 0),
            Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => {
                put(0, 0);
                put(2, 1);
            }
            _ => put(0, 0),
        }
    }
    bytes
}

fn numbers(format: Format, bytes: &[u8], width: usize) -> Vec<f32> {
    let row = format.row_bytes(width).unwrap();
    let mut numbers = vec![0.0; bytes.len() / row * width];
    alara_kernels::dequantize(format, bytes, &mut numbers);
    numbers
}

/// The product and the sum of magnitudes, to which rounding errors are proportional.
fn dot(w: &[f32], x: &[f32]) -> (f32, f32) {
    let products = || w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
    (products().sum::<f64>() as f32, products().map(f64::abs).sum::<f64>() as f32)
}

/// Fails if a number's error exceeds a fraction of the sum of magnitudes of its terms.
/// Halves have an error of 2^-11 in either factor; products of quants are exact, and only their sum
/// is rounded.
#[track_caller]
fn check_products(y: &[f32], wanted: &[(f32, f32)], small: bool, what: &str) {
    assert_eq!(y.len(), wanted.len(), "{what}");
    let part = if small { 2e-6 } else { 1e-3 };
    for (i, (y, (product, magnitudes))) in y.iter().zip(wanted).enumerate() {
        assert!(
            (y - product).abs() <= part * magnitudes,
            "{what}: number {i}: {y} for {product} of {magnitudes}"
        );
    }
}

/// Rows of activations rounded to 8-bit quants, as small batches use them.
fn rounded(x: &[f32]) -> Vec<f32> {
    let block = |block: &[f32]| -> Vec<f32> {
        let most = block.iter().fold(0f32, |most, x| most.max(x.abs()));
        if most == 0.0 {
            return vec![0.0; block.len()];
        }
        block.iter().map(|x| (x * (127.0 / most)).round_ties_even() * (most / 127.0)).collect()
    };
    x.chunks(32).flat_map(block).collect()
}

/// Compares a dense product of `rows` rows with the exact one.
#[track_caller]
fn check(format: Format, out: usize, width: usize, rows: usize) {
    let bytes = weights(format, out, width, 3);
    let w = numbers(format, &bytes, width);
    let x = noise(7, rows * width);
    let bias = noise(8, out);
    let small = rows <= crate::SMALL_BATCH;
    let seen = if small { rounded(&x) } else { x.clone() };
    let product = |x: &[f32], o: usize| {
        let (product, magnitudes) = dot(&w[o * width..][..width], x);
        (product + bias[o], magnitudes + bias[o].abs())
    };
    let wanted: Vec<(f32, f32)> =
        seen.chunks(width).flat_map(|x| (0..out).map(move |o| (x, o))).map(|(x, o)| product(x, o)).collect();
    for on in devices() {
        let (bytes, x, bias) = (Host::of(&bytes), floats(&x), floats(&bias));
        let y = on.alloc(4 * wanted.len()).unwrap();
        let w = Weights { format, bytes: bytes.array(1), width, out, first: 0, stack: out };
        let operands = Operands { x: x.array(4), shared: 1, bias: bias.array(4), y: y.array(4) };
        matmul(&on, &w, &operands, None).unwrap();
        check_products(&to_floats(&y), &wanted, small, &format!("{format:?} {out} x {width}, {rows} rows"));
    }
}

#[test]
fn every_format_in_both_forms() {
    assert_eq!(formats().count(), Format::ALL.len() - 3, "all but the three of floats");
    for format in formats() {
        for rows in [1, 3, 8, 13] {
            check(format, 7, 512, rows);
        }
        check(format, 70, 256, 17);
    }
}

#[test]
fn codebooks_are_the_cpus() {
    let text = include_str!("../kernels/grids.cuh");
    let patterns = text.split("0x").skip(1).map(|rest| u16::from_str_radix(&rest[..4], 16).unwrap());
    let bytes: Vec<u8> = patterns.flat_map(u16::to_le_bytes).collect();
    assert!(bytes == include_bytes!("../../kernels/src/quant/grids.bin"));
}

#[test]
fn rows_of_any_whole_blocks() {
    for width in [32, 96, 2880] {
        check(Format::MXFP4, 5, width, 2);
        check(Format::Q5_1, 5, width, 1);
    }
    check(Format::NVFP4, 5, 192, 2);
    check(Format::Q1_0, 5, 384, 17);
    check(Format::MXFP4, 65, 96, 70);
}

#[test]
fn large_activations_do_not_overflow_halves() {
    let (format, width, rows) = (Format::Q8_0, 64, 20);
    let bytes = weights(format, 3, width, 3);
    let x: Vec<f32> = noise(7, rows * width).iter().map(|x| 1e6 * x).collect();
    let w = numbers(format, &bytes, width);
    let wanted: Vec<(f32, f32)> =
        x.chunks(width).flat_map(|x| w.chunks(width).map(|w| dot(w, x)).collect::<Vec<_>>()).collect();
    let (bytes, x) = (Host::of(&bytes), floats(&x));
    let y = device().alloc(4 * wanted.len()).unwrap();
    let w = Weights { format, bytes: bytes.array(1), width, out: 3, first: 0, stack: 3 };
    let operands = Operands { x: x.array(4), shared: 1, bias: Default::default(), y: y.array(4) };
    matmul(&device(), &w, &operands, None).unwrap();
    check_products(&to_floats(&y), &wanted, false, "large activations");
}

/// Rows of one repeated number, some of them NaN or infinite.
/// As on the CPU, this affects the results of its row, and no others.
#[test]
fn what_is_no_number_shows() {
    let (format, width) = (Format::Q8_0, 64);
    let bytes = weights(format, 3, width, 3);
    for (rows, wrong) in
        [1, 4, 20].into_iter().flat_map(|rows| [f32::NAN, f32::INFINITY].map(|wrong| (rows, wrong)))
    {
        let mut x = noise(7, rows * width);
        x[width - 5] = wrong;
        for on in devices() {
            let (bytes, x) = (Host::of(&bytes), floats(&x));
            let y = on.alloc(4 * rows * 3).unwrap();
            let w = Weights { format, bytes: bytes.array(1), width, out: 3, first: 0, stack: 3 };
            let operands = Operands { x: x.array(4), shared: 1, bias: Default::default(), y: y.array(4) };
            matmul(&on, &w, &operands, None).unwrap();
            let y = to_floats(&y);
            assert!(y[..3].iter().all(|y| !y.is_finite()), "{rows} rows, {wrong}: {:?}", &y[..3]);
            assert!(y[3..].iter().all(|y| y.is_finite()), "{rows} rows, {wrong}");
        }
    }
}

#[test]
fn the_least_numbers_are_as_good_as_zero() {
    let (format, width) = (Format::Q8_0, 64);
    let bytes = weights(format, 3, width, 3);
    for rows in [1, 20] {
        let x = vec![1e-40f32; rows * width];
        let (bytes, x) = (Host::of(&bytes), floats(&x));
        let y = device().alloc(4 * rows * 3).unwrap();
        let w = Weights { format, bytes: bytes.array(1), width, out: 3, first: 0, stack: 3 };
        let operands = Operands { x: x.array(4), shared: 1, bias: Default::default(), y: y.array(4) };
        matmul(&device(), &w, &operands, None).unwrap();
        assert!(to_floats(&y).iter().all(|y| y.abs() < 1e-30), "{rows} rows: {:?}", to_floats(&y));
    }
}

#[test]
fn widened_rows_are_the_cpus() {
    for format in formats() {
        let bytes = weights(format, 9, 512, 5);
        let w = numbers(format, &bytes, 512);
        let rows = [8, 0, 3];
        let wanted: Vec<f32> = rows.iter().flat_map(|&row| w[row * 512..][..512].to_vec()).collect();
        let (bytes, rows) = (Host::of(&bytes), words(&rows.map(|row| row as u32)));
        let y = device().alloc(4 * wanted.len()).unwrap();
        let w = Weights { format, bytes: bytes.array(1), width: 512, out: 9, first: 0, stack: 9 };
        widen(&device(), &w, rows.array(4), y.array(4)).unwrap();
        assert_close(&to_floats(&y), &wanted, 1e-6, format.name());
    }
}

/// Products by expert, of rows `first..first + out` of each, with a row of activations for `shared`
/// places.
#[track_caller]
fn check_grouped(format: Format, experts: usize, places: &[u32], shared: usize, sorted: bool) {
    let (width, stack, first, out) = (256, 11, 2, 9);
    let bytes = weights(format, experts * stack, width, 4);
    let w = numbers(format, &bytes, width);
    let x = noise(9, places.len() / shared * width);
    let bias = noise(10, experts * out);
    let seen = if sorted { x.clone() } else { rounded(&x) };
    let wanted: Vec<(f32, f32)> = (places.iter().enumerate())
        .flat_map(|(place, &expert)| {
            let x = &seen[place / shared * width..][..width];
            let (w, bias) = (&w, &bias);
            (0..out).map(move |o| {
                let row = expert as usize * stack + first + o;
                let (product, magnitudes) = dot(&w[row * width..][..width], x);
                let bias = bias[expert as usize * out + o];
                (product + bias, magnitudes + bias.abs())
            })
        })
        .collect();
    for on in devices() {
        let (bytes, x, bias, chosen) = (Host::of(&bytes), floats(&x), floats(&bias), words(places));
        let y = on.alloc(4 * wanted.len()).unwrap();
        let order = on.alloc(4 * places.len()).unwrap();
        let tiles = on.alloc(16 * max_tiles(places.len(), experts)).unwrap();
        bucket(&on, experts, chosen.array(4), order.array(4), tiles.array(16)).unwrap();
        let buckets = sorted.then(|| [order.array(4), tiles.array(16)]);
        let grouped = Grouped { experts: chosen.array(4), count: experts, buckets };
        let w = Weights { format, bytes: bytes.array(1), width, out, first, stack };
        let operands = Operands { x: x.array(4), shared, bias: bias.array(4), y: y.array(4) };
        matmul(&on, &w, &operands, Some(&grouped)).unwrap();
        check_products(&to_floats(&y), &wanted, !sorted, &format!("{format:?} {} places", places.len()));
        assert!(on.alloc(1).unwrap().address().is_multiple_of(16));
    }
}

#[test]
fn each_row_meets_its_expert() {
    let many: Vec<u32> = (0..160).map(|i| [3, 0, 5, 3, 3, 1, 3][i % 7]).collect();
    for format in [Format::MXFP4, Format::Q4_K, Format::Q6_K] {
        check_grouped(format, 6, &[2, 5, 0, 5], 2, false);
        check_grouped(format, 6, &many, 4, true);
        check_grouped(format, 6, &many[..34], 1, true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn any_shape(out in 1usize..90, sub_blocks in 1usize..9, rows in 1usize..90, format in select(formats().collect::<Vec<_>>())) {
        let width = if format.row_bytes(32).is_some() { 32 * sub_blocks } else { 256 };
        check(format, out, width, rows);
    }
}
