//! The codecs in plain Rust: what every other is held against.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{Codec, FLOATS, Float, Numbers, PANEL, Run, Sixteen, Super};
use crate::activations::Activations;
use crate::lanes::LANES;

/// Runs of a format.
pub(crate) struct Runs<F>(PhantomData<F>);

/// Eight runs, unpacked.
pub(crate) struct Run8 {
    codes: [[i8; 32]; LANES],
    scales: [f32; LANES],
    offsets: [f32; LANES],
}

impl<F: Run> Codec for Runs<F> {
    const LEN: usize = PANEL;
    const BYTES: usize = LANES * F::FORMAT.block_bytes();
    type Panel = Run8;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Run8 {
        let mut panel = Run8 { codes: [[0; 32]; LANES], scales: [0.0; LANES], offsets: [0.0; LANES] };
        for (lane, block) in bytes.chunks_exact(F::FORMAT.block_bytes()).enumerate() {
            panel.codes[lane] = F::codes(block);
            panel.scales[lane] = F::scale(block);
            panel.offsets[lane] = F::offset(block);
        }
        panel
    }

    #[inline(always)]
    unsafe fn dot(panel: &Run8, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let (codes, sums, scales) = x.runs(row, index);
        for (lane, (w, x)) in panel.codes.iter().zip(codes.as_chunks::<32>().0).enumerate() {
            let sum: i32 = w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
            lanes[lane] = (panel.scales[lane] * scales[lane]).mul_add(sum as f32, lanes[lane]);
            if F::OFFSET {
                let sum = i32::from(sums[2 * lane]) + i32::from(sums[2 * lane + 1]);
                lanes[lane] = (panel.offsets[lane] * scales[lane]).mul_add(sum as f32, lanes[lane]);
            }
        }
    }
}

impl<F: Run> Numbers for Runs<F> {
    fn numbers(panel: &Run8, y: &mut [f32]) {
        for (lane, y) in y.chunks_mut(32).enumerate() {
            for (y, &code) in y.iter_mut().zip(&panel.codes[lane]) {
                *y = panel.scales[lane] * f32::from(code);
                if F::OFFSET {
                    *y += panel.offsets[lane];
                }
            }
        }
    }
}

/// Superblocks of a format.
pub(crate) struct Supers<F>(PhantomData<F>);

/// One superblock, unpacked.
pub(crate) struct Super1 {
    codes: [i8; PANEL],
    scales: [i8; 16],
    minima: [u8; 16],
    scale: f32,
    minimum: f32,
}

impl<F: Super> Codec for Supers<F> {
    const LEN: usize = PANEL;
    const BYTES: usize = F::FORMAT.block_bytes();
    type Panel = Super1;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Super1 {
        let (scale, minimum) = F::scale(bytes);
        let (scales, minima) = F::scales(bytes);
        Super1 { codes: F::codes(bytes), scales, minima, scale, minimum }
    }

    #[inline(always)]
    unsafe fn dot(panel: &Super1, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let (codes, sums, scale) = x.supers(row, index);
        let lane = &mut lanes[index % LANES];
        let sixteens = panel.codes.as_chunks::<16>().0.iter().zip(codes.as_chunks::<16>().0);
        let products = sixteens.zip(panel.scales).map(|((w, x), scale)| {
            let sum: i32 = w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
            i32::from(scale) * sum
        });
        *lane = (panel.scale * scale).mul_add(products.sum::<i32>() as f32, *lane);
        if F::MINIMA {
            let sum: i32 =
                panel.minima.iter().zip(sums).map(|(&m, &sum)| i32::from(m) * i32::from(sum)).sum();
            *lane = (-panel.minimum * scale).mul_add(sum as f32, *lane);
        }
    }
}

impl<F: Super> Numbers for Supers<F> {
    fn numbers(panel: &Super1, y: &mut [f32]) {
        for (sixteen, y) in y.chunks_mut(16).enumerate() {
            let scale = panel.scale * f32::from(panel.scales[sixteen]);
            let minimum = panel.minimum * f32::from(panel.minima[sixteen]);
            for (y, &code) in y.iter_mut().zip(&panel.codes[16 * sixteen..]) {
                *y = scale * f32::from(code);
                if F::MINIMA {
                    *y -= minimum;
                }
            }
        }
    }
}

/// Sixteens of a format.
pub(crate) struct Sixteens<F>(PhantomData<F>);

/// Sixteen sixteens, unpacked.
pub(crate) struct Sixteen16 {
    codes: [i8; PANEL],
    scales: [f32; 16],
}

impl<F: Sixteen> Codec for Sixteens<F> {
    const LEN: usize = PANEL;
    const BYTES: usize = F::BYTES;
    type Panel = Sixteen16;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Sixteen16 {
        Sixteen16 { codes: F::codes(bytes), scales: F::scales(bytes) }
    }

    #[inline(always)]
    unsafe fn dot(panel: &Sixteen16, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let (codes, _, scales) = x.runs(row, index);
        let sixteens = panel.codes.as_chunks::<16>().0.iter().zip(codes.as_chunks::<16>().0);
        for (i, (w, x)) in sixteens.enumerate() {
            let sum: i32 = w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
            let lane = &mut lanes[i % 2 * 4 + i / 2 % 4];
            *lane = (panel.scales[i] * scales[i / 2]).mul_add(sum as f32, *lane);
        }
    }
}

impl<F: Sixteen> Numbers for Sixteens<F> {
    fn numbers(panel: &Sixteen16, y: &mut [f32]) {
        for (i, (y, &code)) in y.iter_mut().zip(&panel.codes).enumerate() {
            *y = panel.scales[i / 16] * f32::from(code);
        }
    }
}

/// Floats of a format.
pub(crate) struct Floats<F>(PhantomData<F>);

impl<F: Float> Codec for Floats<F> {
    const LEN: usize = FLOATS;
    const BYTES: usize = FLOATS * F::BYTES;
    type Panel = [f32; FLOATS];

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Self::Panel {
        let mut panel = [0.0; FLOATS];
        for (w, bytes) in panel.iter_mut().zip(bytes.chunks_exact(F::BYTES)) {
            *w = F::widen(bytes);
        }
        panel
    }

    #[inline(always)]
    unsafe fn dot(w: &Self::Panel, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let x = x.floats(row, index);
        for (w, x) in w.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                lanes[lane] = w[lane].mul_add(x[lane], lanes[lane]);
            }
        }
    }
}

impl<F: Float> Numbers for Floats<F> {
    fn numbers(panel: &Self::Panel, y: &mut [f32]) {
        y.copy_from_slice(&panel[..y.len()]);
    }
}
