//! Activations in tiles of sixteen interleaved rows, the form that a GEMM reads.
#![allow(unsafe_code)]

use super::{Activations, TILE_ROWS};
use crate::Cpu;
use crate::format::SUPER_BLOCK;
use crate::lanes::LANES;
use crate::thread_pool::Disjoint;

/// A super-block of sixteen rows: 256 quants and a scale per row.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct SuperTile {
    /// Four consecutive quants of each row.
    pub quants: [[[i8; 4]; TILE_ROWS]; 64],
    /// The sums of each sixteen quants, in pairs.
    pub sums: [[[i16; 2]; TILE_ROWS]; 8],
    /// The sums of each 32 quants, in pairs.
    pub wide_sums: [[[i16; 2]; TILE_ROWS]; 4],
    /// The scales.
    pub scales: [f32; TILE_ROWS],
}

/// A block of sixteen rows: 32 quants and a scale per row.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct BlockTile {
    /// Four consecutive quants of each row.
    pub quants: [[[i8; 4]; TILE_ROWS]; 8],
    /// The sums of quants.
    pub sums: [i32; TILE_ROWS],
    /// The scales.
    pub scales: [f32; TILE_ROWS],
}

/// The quants of a [`BlockTile`] as words: two consecutive ones per row.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct WordTile(pub [[[i16; 2]; TILE_ROWS]; 16]);

/// Rows of activations in tiles; the last tile is padded with zeros.
/// Either `super_blocks` or `blocks` is filled.
#[derive(Debug, Default)]
pub(crate) struct Tiles {
    /// The rows in the tiles: `None` if nothing is up to date, an empty list means all.
    taken: Option<Vec<u32>>,
    /// Number of rows.
    rows: usize,
    count: usize,
    ends_in_half: bool,
    /// `[chunks, count]`
    super_blocks: Vec<SuperTile>,
    /// `[LANES, count, chunks]`
    blocks: Vec<BlockTile>,
    /// The quants of `blocks` as words, or empty until they are needed.
    words: Vec<WordTile>,
}

impl Tiles {
    /// Invalidates the tiles.
    pub(super) fn forget(&mut self) {
        self.taken = None;
    }

    /// The number of tiles per chunk.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether only the first half of the last tile has rows.
    pub(crate) fn ends_in_half(&self) -> bool {
        self.ends_in_half
    }

    /// All tiles of a chunk.
    pub(crate) fn super_blocks(&self, chunk: usize) -> &[SuperTile] {
        &self.super_blocks[chunk * self.count..][..self.count]
    }

    /// All tiles of the blocks whose products are added to a lane: `[count, chunks]`.
    pub(crate) fn blocks(&self, lane: usize) -> &[BlockTile] {
        let len = self.blocks.len() / LANES;
        &self.blocks[lane * len..][..len]
    }

    /// The quants of [`Tiles::blocks`] as words, after [`Tiles::widen`].
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn words(&self, lane: usize) -> &[WordTile] {
        let len = self.words.len() / LANES;
        &self.words[lane * len..][..len]
    }

    /// Widens all blocks' quants to words.
    pub(super) fn widen(&mut self, cpu: &Cpu) {
        if self.words.len() == self.blocks.len() {
            return;
        }
        self.words.resize(self.blocks.len(), WordTile([[[0; 2]; TILE_ROWS]; 16]));
        let words = Disjoint::new(&mut self.words);
        cpu.threads.run(self.blocks.len(), &|tile| {
            // SAFETY: each task has its own tile.
            let WordTile(words) = unsafe { &mut words.slice(tile, 1)[0] };
            for (words, quads) in words.as_chunks_mut::<2>().0.iter_mut().zip(&self.blocks[tile].quants) {
                for (at, quad) in quads.iter().enumerate() {
                    let [a, b, c, d] = quad.map(i16::from);
                    words[0][at] = [a, b];
                    words[1][at] = [c, d];
                }
            }
        });
    }

    /// Fills the tiles with the first `rows` rows of `x`, or those in `row_ids`.
    pub(super) fn take(&mut self, cpu: &Cpu, x: &Activations, row_ids: Option<&[u32]>, rows: usize) {
        let wanted = row_ids.map_or(&[][..], |row_ids| &row_ids[..rows]);
        if self.taken.as_deref() == Some(wanted) && self.rows == rows {
            return;
        }
        self.words.clear();
        self.rows = rows;
        let from = |i: usize| row_ids.map_or(i, |rows| rows[i] as usize);
        self.count = rows.div_ceil(TILE_ROWS);
        self.ends_in_half = (1..=TILE_ROWS / 2).contains(&(rows % TILE_ROWS));
        let (count, chunks) = (self.count, x.chunks());
        if x.has_super_blocks() {
            self.super_blocks.resize(count * chunks, SuperTile::ZERO);
            let tiles = Disjoint::new(&mut self.super_blocks);
            cpu.threads.run(count * chunks, &|task| {
                let (chunk, tile) = (task / count, task % count);
                // SAFETY: each task has its own tile.
                let out = unsafe { &mut tiles.slice(task, 1)[0] };
                for at in 0..TILE_ROWS {
                    let row = tile * TILE_ROWS + at;
                    if row < rows {
                        out.set(at, x.super_block(from(row), chunk));
                    } else {
                        out.set(at, (&[0; 256], &[0; 16], 0.0));
                    }
                }
            });
        } else {
            self.blocks.resize(LANES * count * chunks, BlockTile::ZERO);
            let tiles = Disjoint::new(&mut self.blocks);
            cpu.threads.run(count * chunks, &|task| {
                let (tile, chunk) = (task / chunks, task % chunks);
                for at in 0..TILE_ROWS {
                    let row = tile * TILE_ROWS + at;
                    let (quants, sums, scales): (&[i8], &[i16], &[f32]) = if row < rows {
                        x.blocks(from(row), chunk)
                    } else {
                        (&[0; SUPER_BLOCK], &[0; SUPER_BLOCK / 16], &[0.0; LANES])
                    };
                    for lane in 0..LANES {
                        // SAFETY: each task has its own chunk of a tile.
                        let out = unsafe { &mut tiles.slice(lane * count * chunks + task, 1)[0] };
                        out.set(at, &quants[32 * lane..][..32], &sums[2 * lane..][..2], scales[lane]);
                    }
                }
            });
        }
        let taken = self.taken.get_or_insert_default();
        taken.clear();
        taken.extend_from_slice(wanted);
    }
}

fn set_quants(quads: &mut [[[i8; 4]; TILE_ROWS]], at: usize, quants: &[i8]) {
    for (quad, quants) in quads.iter_mut().zip(quants.as_chunks::<4>().0) {
        quad[at] = *quants;
    }
}

impl SuperTile {
    const ZERO: SuperTile = SuperTile {
        quants: [[[0; 4]; TILE_ROWS]; 64],
        sums: [[[0; 2]; TILE_ROWS]; 8],
        wide_sums: [[[0; 2]; TILE_ROWS]; 4],
        scales: [0.0; TILE_ROWS],
    };

    fn set(&mut self, at: usize, (quants, sums, scale): (&[i8], &[i16], f32)) {
        set_quants(&mut self.quants, at, quants);
        for (pair, sums) in self.sums.iter_mut().zip(sums.as_chunks::<2>().0) {
            pair[at] = *sums;
        }
        for (pair, sums) in self.wide_sums.iter_mut().zip(sums.as_chunks::<4>().0) {
            pair[at] = [sums[0] + sums[1], sums[2] + sums[3]];
        }
        self.scales[at] = scale;
    }
}

impl BlockTile {
    const ZERO: BlockTile =
        BlockTile { quants: [[[0; 4]; TILE_ROWS]; 8], sums: [0; TILE_ROWS], scales: [0.0; TILE_ROWS] };

    fn set(&mut self, at: usize, quants: &[i8], sums: &[i16], scale: f32) {
        set_quants(&mut self.quants, at, quants);
        self.sums[at] = i32::from(sums[0]) + i32::from(sums[1]);
        self.scales[at] = scale;
    }
}
