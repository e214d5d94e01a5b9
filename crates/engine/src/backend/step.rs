//! A step: which tokens of which sequences one forward pass computes, and where their cache lies.

use alara_kernels::{DeltaShape, ScanShape};

use crate::cache::SlotId;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// Four bytes a number, exact.
    F32,
    /// Two bytes a number.
    #[default]
    F16,
    /// Blocks of 32 numbers of one byte with an f16 scale.
    Q8_0,
}

impl KvType {
    /// Bytes that `numbers` take; a whole number of 32-number blocks for [`KvType::Q8_0`].
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
/// It has one size however long the sequence is, and is all zeros at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Rows, and numbers of each.
    pub history: [usize; 2],
    /// How many matrices, and rows and columns of each; zeros where a layer has none.
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

    /// Of a layer that convolves `channels` by `kernel` taps, and has no other state.
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

/// A section of a model, as it is loaded: what it begins with, its blocks, what it ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// The table of embeddings.
    Input,
    /// A block, by its number.
    Block(usize),
    /// The last norm and the matrix that gives logits.
    Output,
}

/// One sequence's share of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// How many of the step's rows are this sequence's; they follow the previous span's.
    pub rows: usize,
    /// How many tokens of the sequence the cache holds already: the position of the first row.
    pub past: usize,
    /// The block table: numbers of the blocks that hold the sequence's tokens, in order, and will
    /// hold the new rows.
    pub blocks: Vec<u32>,
    /// The same for windowed layers; those wholly before the window may name any block.
    pub windowed: Vec<u32>,
    /// Where the sequence's recurrent state lies.
    /// It counts as zero while `past` is 0.
    pub slot: SlotId,
    /// After how many of its rows, ascending, the recurrent state is copied to which other slot
    /// too.
    pub saves: Vec<(usize, SlotId)>,
}

impl Span {
    /// Its rows in segments that end where state is saved: how many, and the slot that gets it.
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

/// What one forward pass computes: T tokens of S sequences, each at its own positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The tokens.
    /// `[T]`
    pub tokens: Vec<u32>,
    /// The sequences; their rows sum to T.
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
