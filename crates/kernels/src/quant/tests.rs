use super::dequantize;
use crate::Format;
use crate::quant::codebook::E2M1;

/// For each format in order: 70 floats, 11 blocks of 32 or 3 of 256, of random bits with finite scales; then the f32
/// numbers that the `gguf` Python package (0.19) makes of them.
const BLOCKS: &[u8] = include_bytes!("../../../../tests/fixtures/quants/blocks.bin");

#[test]
fn numbers_are_those_of_the_reference() {
    let mut rest = BLOCKS;
    for format in Format::ALL {
        let blocks = match format.block_len() {
            1 => 70,
            32 => 11,
            _ => 3,
        };
        let (bytes, after) = rest.split_at(blocks * format.block_bytes());
        let (expected, after) = after.split_at(4 * blocks * format.block_len());
        rest = after;
        let expected: Vec<f32> =
            expected.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let mut y = vec![0.0; expected.len()];
        dequantize(format, bytes, &mut y);
        for (i, (y, expected)) in y.iter().zip(&expected).enumerate() {
            assert!(y.to_bits() == expected.to_bits(), "{} number {i}: {y}, not {expected}", format.name());
        }
    }
    assert!(rest.is_empty());
}

#[test]
fn mxfp4_is_a_power_of_two_times_a_small_float() {
    let values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0f64];
    for exponent in 0..=255u8 {
        for nibble in 0..16 {
            let mut block = [nibble | nibble << 4; 17];
            block[0] = exponent;
            let mut y = [0.0; 32];
            dequantize(Format::MXFP4, &block, &mut y);
            let sign = if nibble < 8 { 1.0 } else { -1.0 };
            let expected = sign * values[usize::from(nibble % 8)] * 2f64.powi(i32::from(exponent) - 127);
            assert!(y.iter().all(|&y| f64::from(y) == expected || expected.abs() > f64::from(f32::MAX)));
            assert_eq!(f64::from(E2M1[usize::from(nibble)]), 2.0 * sign * values[usize::from(nibble % 8)]);
        }
    }
}

#[test]
fn mxfp4_low_nibbles_come_first() {
    let mut block = [0x21; 17];
    block[0] = 127;
    let mut y = [0.0; 32];
    dequantize(Format::MXFP4, &block, &mut y);
    assert_eq!((y[..16].to_vec(), y[16..].to_vec()), (vec![0.5; 16], vec![1.0; 16]));
}
