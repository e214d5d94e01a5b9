use super::dequantize;
use crate::Format;
use crate::quant::codebook::E2M1;

/// For each format in order: 70 floats, 11 blocks of 32 or 3 larger ones, of random bits with
/// finite scales.
/// Followed by the f32 numbers that the `gguf` Python package (0.19) decodes from them.
/// For Q1_0, which it doesn't support, they come from llama.cpp.
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

/// Enough random blocks to cover most patterns of a codebook.
/// The checksum (FNV-1a over the bits) is that of llama.cpp's results (`dequantize_row_*`), with
/// positive zeros.
#[test]
fn numbers_of_many_blocks_are_those_of_llama_cpp() {
    const SUMS: [(Format, u64); 11] = [
        (Format::IQ1_S, 0xc2ec_ebfc_c35c_7889),
        (Format::IQ1_M, 0xb7cd_a889_6a2f_3d2e),
        (Format::IQ2_XXS, 0x9683_b1b7_7102_ffb3),
        (Format::IQ2_XS, 0xe86e_d03d_5da2_a3b5),
        (Format::IQ2_S, 0x6d57_4f0a_890f_b437),
        (Format::IQ3_XXS, 0xf214_9bd0_55d1_854e),
        (Format::IQ3_S, 0x1dca_f6a0_a203_dc75),
        (Format::TQ1_0, 0x3a59_7bc0_7958_2ec5),
        (Format::TQ2_0, 0x0284_f9aa_551b_422a),
        (Format::NVFP4, 0x2b7b_b578_d339_4760),
        (Format::Q1_0, 0xd69d_a67d_5b9d_a4a5),
    ];
    for (format, wanted) in SUMS {
        let size = format.block_bytes();
        let mut state = size as u64;
        let mut bytes = vec![0; 250 * size];
        bytes.fill_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        // Position of the upper byte of a block's scale, whose exponent is reduced below that of
        // NaN.
        let upper = match format {
            Format::NVFP4 => None,
            Format::IQ1_M | Format::TQ1_0 | Format::TQ2_0 => Some(size - 1),
            _ => Some(1),
        };
        if let Some(at) = upper {
            bytes.chunks_exact_mut(size).for_each(|block| block[at] &= 0xbf);
        }
        let mut y = vec![0.0; 250 * format.block_len()];
        dequantize(format, &bytes, &mut y);
        let sum =
            y.iter().flat_map(|y| (y + 0.0).to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        assert_eq!(sum, wanted, "{}", format.name());
    }
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
