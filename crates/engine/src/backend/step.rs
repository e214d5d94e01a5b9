//! A step: the tokens and sequences of one forward pass, and the location of their caches.

use alara_kernels::{DeltaShape, ScanShape};

use crate::cache::SlotId;

/// The number format of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// Four bytes per number, exact.
    F32,
    /// Two bytes per number.
    #[default]
    F16,
    /// Blocks of 32 one-byte numbers with an f16 scale.
    Q8_0,
}

impl KvType {
    /// Bytes of `numbers` numbers; for [`KvType::Q8_0`] a multiple of 32.
    pub fn bytes(self, numbers: usize) -> usize {
        match self {
            KvType::F32 => 4 * numbers,
            KvType::F16 => 2 * numbers,
            KvType::Q8_0 => numbers.div_ceil(32) * 34,
        }
    }
}

impl std::str::FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "f32" => Ok(KvType::F32),
            "f16" => Ok(KvType::F16),
            "q8_0" => Ok(KvType::Q8_0),
            other => Err(format!("`{other}` is none of f32, f16, q8_0")),
        }
    }
}

/// The recurrent state of a layer: the last rows before a convolution, and matrices.
/// Its size doesn't depend on the sequence's length, and it begins as all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Number of rows, and numbers per row.
    pub history: [usize; 2],
    /// Number of matrices, and rows and columns of each; zeros for a layer without matrices.
    pub matrices: [usize; 3],
}

impl StateShape {
    /// Numbers of the history and of all matrices.
    pub fn numbers(&self) -> (usize, usize) {
        (self.history.iter().product(), self.matrices.iter().product())
    }

    /// Bytes of both, in f32.
    pub fn bytes(&self) -> usize {
        let (history, matrices) = self.numbers();
        4 * (history + matrices)
    }

    /// The state of a layer that only convolves `channels` with `kernel` taps.
    pub fn convolved(kernel: usize, channels: usize) -> Self {
        StateShape { history: [kernel - 1, channels], matrices: [0; 3] }
    }
}

impl From<&DeltaShape> for StateShape {
    fn from(shape: &DeltaShape) -> Self {
        let matrices = [shape.value_heads, shape.key_width, shape.value_width];
        StateShape { matrices, ..StateShape::convolved(shape.kernel, shape.channels()) }
    }
}

impl From<&ScanShape> for StateShape {
    fn from(shape: &ScanShape) -> Self {
        let matrices = [shape.heads, shape.state, shape.width];
        StateShape { matrices, ..StateShape::convolved(shape.kernel, shape.channels()) }
    }
}

/// A section of a model in loading order: input, blocks, output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// The embedding table.
    Input,
    /// A block, by its number.
    Block(usize),
    /// The last norm and the output matrix.
    Output,
}

/// One sequence's part of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Number of the step's rows that belong to this sequence; they follow the previous span's.
    pub rows: usize,
    /// Number of the sequence's tokens already in the cache: the position of the first row.
    pub past: usize,
    /// The block table: numbers of the blocks that hold the sequence's tokens, in order, including
    /// the new rows.
    pub blocks: Vec<u32>,
    /// The block table for windowed layers; entries entirely before the window may name any block.
    pub windowed: Vec<u32>,
    /// The slot of the sequence's recurrent state.
    /// It is treated as zero while `past` is 0.
    pub slot: SlotId,
    /// Where to save the recurrent state: after how many of the span's rows, ascending, and to
    /// which slot.
    pub saves: Vec<(usize, SlotId)>,
}

impl Span {
    /// Splits the rows into segments that end where state is saved: number of rows, and the slot.
    pub fn segments(&self) -> impl Iterator<Item = (usize, Option<SlotId>)> + '_ {
        let ends = self.saves.iter().map(|(rows, slot)| (*rows, Some(*slot))).chain([(self.rows, None)]);
        let mut before = 0;
        ends.map(move |(end, slot)| (end - std::mem::replace(&mut before, end), slot))
            .filter(|(rows, slot)| *rows > 0 || slot.is_some())
    }

    /// The blocks of a layer with `window`.
    pub fn blocks_for(&self, window: Option<usize>) -> &[u32] {
        if window.is_some() { &self.windowed } else { &self.blocks }
    }
}

/// The work of one forward pass: T tokens of S sequences, each at its own positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The tokens.
    /// `[T]`
    pub tokens: Vec<u32>,
    /// The sequences; their rows add up to T.
    pub spans: Vec<Span>,
    /// The rows whose logits are wanted, ascending.
    pub outputs: Vec<usize>,
}

impl Step {
    /// The position of every row.
    /// `[T]`
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.spans.iter().flat_map(|span| span.past..span.past + span.rows)
    }
}
