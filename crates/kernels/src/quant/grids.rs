//! The codebooks of the IQ formats: patterns of eight or four magnitudes, to which blocks refer by
//! number.
//!
//! `grids.bin` contains the tables of llama.cpp's `ggml-common.h` (`iq2xxs_grid`, `iq2xs_grid`,
//! `iq2s_grid`, `iq3xxs_grid`, `iq3s_grid`, `iq1s_grid`, in this order), packed.
//! A pattern is sixteen bits.
//! Either two bits select one of three values for each of eight numbers, or four bits one of eight
//! values for each of four numbers.

static PACKED: &[u8; 9216] = include_bytes!("grids.bin");

/// The patterns of IQ2_XXS: number `i` of a pattern is in byte `i`.
pub(crate) static IQ2_XXS: [u64; 256] = eights(0, [8, 25, 43]);
pub(crate) static IQ2_XS: [u64; 512] = eights(512, [8, 25, 43]);
pub(crate) static IQ2_S: [u64; 1024] = eights(1536, [8, 25, 43]);
pub(crate) static IQ3_XXS: [u32; 256] = fours(3584, [4, 12, 20, 28, 36, 44, 52, 62]);
pub(crate) static IQ3_S: [u32; 512] = fours(4096, [1, 3, 5, 7, 9, 11, 13, 15]);
/// The values -1, 0 and 1, increased by 1 and multiplied by 8.
pub(crate) static IQ1: [u64; 2048] = eights(5120, [0, 8, 16]);

const fn packed(at: usize) -> u16 {
    u16::from_le_bytes([PACKED[at], PACKED[at + 1]])
}

const fn eights<const N: usize>(at: usize, values: [u64; 3]) -> [u64; N] {
    let mut patterns = [0; N];
    let mut i = 0;
    while i < 8 * N {
        let place = packed(at + i / 8 * 2) >> (i % 8 * 2) & 3;
        patterns[i / 8] |= values[place as usize] << (i % 8 * 8);
        i += 1;
    }
    patterns
}

const fn fours<const N: usize>(at: usize, values: [u32; 8]) -> [u32; N] {
    let mut patterns = [0; N];
    let mut i = 0;
    while i < 4 * N {
        let place = packed(at + i / 4 * 2) >> (i % 4 * 4) & 7;
        patterns[i / 4] |= values[place as usize] << (i % 4 * 8);
        i += 1;
    }
    patterns
}
