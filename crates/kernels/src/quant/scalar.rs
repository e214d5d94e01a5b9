//! The codecs in plain Rust: the reference for all others.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{Block, Codec, Dequantize, Float, SubBlock, SuperBlock};
use crate::activations::Activations;
use crate::format::{FLOAT_CHUNK, SUPER_BLOCK};
use crate::lanes::LANES;

/// Blocks of a format.
pub(crate) struct Blocks<F>(PhantomData<F>);

/// Eight blocks, unpacked.
pub(crate) struct UnpackedBlocks {
    quants: [[i8; 32]; LANES],
    scales: [f32; LANES],
    offsets: [f32; LANES],
}

impl<F: Block> Codec for Blocks<F> {
    const LEN: usize = SUPER_BLOCK;
    const BYTES: usize = LANES * F::FORMAT.block_bytes();
    type Chunk = UnpackedBlocks;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> UnpackedBlocks {
        let mut chunk =
            UnpackedBlocks { quants: [[0; 32]; LANES], scales: [0.0; LANES], offsets: [0.0; LANES] };
        for (lane, block) in bytes.chunks_exact(F::FORMAT.block_bytes()).enumerate() {
            chunk.quants[lane] = F::quants(block);
            chunk.scales[lane] = F::scale(block);
            chunk.offsets[lane] = F::offset(block);
        }
        chunk
    }

    #[inline(always)]
    unsafe fn dot(
        chunk: &UnpackedBlocks,
        x: &Activations,
        row: usize,
        index: usize,
        lanes: &mut [f32; LANES],
    ) {
        let (quants, sums, scales) = x.blocks(row, index);
        for (lane, (w, x)) in chunk.quants.iter().zip(quants.as_chunks::<32>().0).enumerate() {
            let sum: i32 = w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
            lanes[lane] = (chunk.scales[lane] * scales[lane]).mul_add(sum as f32, lanes[lane]);
            if F::OFFSET {
                let sum = i32::from(sums[2 * lane]) + i32::from(sums[2 * lane + 1]);
                lanes[lane] = (chunk.offsets[lane] * scales[lane]).mul_add(sum as f32, lanes[lane]);
            }
        }
    }
}

impl<F: Block> Dequantize for Blocks<F> {
    fn dequantize(chunk: &UnpackedBlocks, y: &mut [f32]) {
        for (lane, y) in y.chunks_mut(32).enumerate() {
            for (y, &quant) in y.iter_mut().zip(&chunk.quants[lane]) {
                *y = chunk.scales[lane] * f32::from(quant);
                if F::OFFSET {
                    *y += chunk.offsets[lane];
                }
            }
        }
    }
}

/// Super-blocks of a format.
pub(crate) struct SuperBlocks<F>(PhantomData<F>);

/// One super-block, unpacked.
pub(crate) struct UnpackedSuperBlock {
    quants: [i8; SUPER_BLOCK],
    scales: [i8; 16],
    minima: [u8; 16],
    scale: f32,
    minimum: f32,
}

impl<F: SuperBlock> Codec for SuperBlocks<F> {
    const LEN: usize = SUPER_BLOCK;
    const BYTES: usize = F::FORMAT.block_bytes();
    type Chunk = UnpackedSuperBlock;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> UnpackedSuperBlock {
        let (scale, minimum) = F::scale(bytes);
        let (scales, minima) = F::scales(bytes);
        UnpackedSuperBlock { quants: F::quants(bytes), scales, minima, scale, minimum }
    }

    #[inline(always)]
    unsafe fn dot(
        chunk: &UnpackedSuperBlock,
        x: &Activations,
        row: usize,
        index: usize,
        lanes: &mut [f32; LANES],
    ) {
        let (quants, sums, scale) = x.super_block(row, index);
        let lane = &mut lanes[index % LANES];
        let sub_blocks = chunk.quants.as_chunks::<16>().0.iter().zip(quants.as_chunks::<16>().0);
        let products = sub_blocks.zip(chunk.scales).map(|((w, x), scale)| {
            let sum: i32 = w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
            i32::from(scale) * sum
        });
        *lane = (chunk.scale * scale).mul_add(products.sum::<i32>() as f32, *lane);
        if F::MINIMA {
            let sum: i32 =
                chunk.minima.iter().zip(sums).map(|(&m, &sum)| i32::from(m) * i32::from(sum)).sum();
            *lane = (-chunk.minimum * scale).mul_add(sum as f32, *lane);
        }
    }
}

impl<F: SuperBlock> Dequantize for SuperBlocks<F> {
    fn dequantize(chunk: &UnpackedSuperBlock, y: &mut [f32]) {
        for (sixteen, y) in y.chunks_mut(16).enumerate() {
            let scale = chunk.scale * f32::from(chunk.scales[sixteen]);
            let minimum = chunk.minimum * f32::from(chunk.minima[sixteen]);
            for (y, &quant) in y.iter_mut().zip(&chunk.quants[16 * sixteen..]) {
                *y = scale * f32::from(quant);
                if F::MINIMA {
                    *y -= minimum;
                }
            }
        }
    }
}

/// Sub-blocks of a format.
pub(crate) struct SubBlocks<F>(PhantomData<F>);

/// Sixteen sub-blocks, unpacked.
pub(crate) struct UnpackedSubBlocks {
    quants: [i8; SUPER_BLOCK],
    scales: [f32; 16],
}

impl<F: SubBlock> Codec for SubBlocks<F> {
    const LEN: usize = SUPER_BLOCK;
    const BYTES: usize = F::BYTES;
    type Chunk = UnpackedSubBlocks;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> UnpackedSubBlocks {
        UnpackedSubBlocks { quants: F::quants(bytes), scales: F::scales(bytes) }
    }

    #[inline(always)]
    unsafe fn dot(
        chunk: &UnpackedSubBlocks,
        x: &Activations,
        row: usize,
        index: usize,
        lanes: &mut [f32; LANES],
    ) {
        let (quants, _, scales) = x.blocks(row, index);
        let sub_blocks = chunk.quants.as_chunks::<16>().0.iter().zip(quants.as_chunks::<16>().0);
        for (i, (w, x)) in sub_blocks.enumerate() {
            let sum: i32 = w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
            let lane = &mut lanes[i % 2 * 4 + i / 2 % 4];
            *lane = (chunk.scales[i] * scales[i / 2]).mul_add(sum as f32, *lane);
        }
    }
}

impl<F: SubBlock> Dequantize for SubBlocks<F> {
    fn dequantize(chunk: &UnpackedSubBlocks, y: &mut [f32]) {
        for (i, (y, &quant)) in y.iter_mut().zip(&chunk.quants).enumerate() {
            *y = chunk.scales[i / 16] * f32::from(quant);
        }
    }
}

/// Floats of a format.
pub(crate) struct Floats<F>(PhantomData<F>);

impl<F: Float> Codec for Floats<F> {
    const LEN: usize = FLOAT_CHUNK;
    const BYTES: usize = FLOAT_CHUNK * F::BYTES;
    type Chunk = [f32; FLOAT_CHUNK];

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Self::Chunk {
        let mut chunk = [0.0; FLOAT_CHUNK];
        for (w, bytes) in chunk.iter_mut().zip(bytes.chunks_exact(F::BYTES)) {
            *w = F::widen(bytes);
        }
        chunk
    }

    #[inline(always)]
    unsafe fn dot(w: &Self::Chunk, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let x = x.floats(row, index);
        for (w, x) in w.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                lanes[lane] = w[lane].mul_add(x[lane], lanes[lane]);
            }
        }
    }
}

impl<F: Float> Dequantize for Floats<F> {
    fn dequantize(chunk: &Self::Chunk, y: &mut [f32]) {
        y.copy_from_slice(&chunk[..y.len()]);
    }
}
