//! The recurrent state of layers, in slots.

use candle_core::{DType, Device, Result, Tensor};

use crate::backend::{StateShape, Step};
use crate::cache::SlotId;

/// The recurrent state of one layer, in slots.
#[derive(Debug)]
pub struct TensorState {
    /// The initial state of every sequence.
    empty: Memory,
    slots: Vec<Memory>,
}

/// The state of one sequence in one layer.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The last rows before the convolution, oldest first.
    /// `[kernel - 1, channels]`
    pub history: Tensor,
    /// The state matrices by head, see [`StateShape`].
    pub matrices: Tensor,
}

impl TensorState {
    /// A slot takes no memory before its first use.
    pub fn zeros(slots: usize, shape: &StateShape, device: &Device) -> Result<Self> {
        // Some devices can't allocate empty tensors.
        let zeros = |shape: &[usize]| {
            let empty = shape.iter().product::<usize>() == 0;
            Tensor::zeros(shape, DType::F32, if empty { &Device::Cpu } else { device })
        };
        let empty = Memory { history: zeros(&shape.history)?, matrices: zeros(&shape.matrices)? };
        Ok(TensorState { slots: vec![empty.clone(); slots], empty })
    }

    /// Appends history and matrices of a slot to `out`, as little-endian f32, like the native
    /// backend does.
    pub fn save(&self, slot: SlotId, out: &mut Vec<u8>) -> Result<()> {
        let Memory { history, matrices } = &self.slots[slot.0 as usize];
        for tensor in [history, matrices] {
            out.extend(
                tensor.flatten_all()?.to_vec1::<f32>()?.iter().flat_map(|number| number.to_le_bytes()),
            );
        }
        Ok(())
    }

    /// Restores the bytes saved by [`TensorState::save`].
    pub fn load(&mut self, slot: SlotId, bytes: &[u8]) -> Result<()> {
        let Memory { history, matrices } = &self.empty;
        let (first, second) = bytes.split_at(4 * history.elem_count());
        let tensor = |like: &Tensor, bytes: &[u8]| {
            let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|n| f32::from_le_bytes(*n)).collect();
            Tensor::from_vec(numbers, like.shape(), like.device())
        };
        let memory = Memory { history: tensor(history, first)?, matrices: tensor(matrices, second)? };
        self.slots[slot.0 as usize] = memory;
        Ok(())
    }

    /// Calls `advance` for the rows of every sequence of `step` in order, split where state has to
    /// be saved.
    /// It takes the first row, the number of rows and the sequence's state, and returns the rows'
    /// results and the new state.
    /// Returns all results.
    /// `[T, ..]`
    pub fn through(
        &mut self,
        step: &Step,
        mut advance: impl FnMut(usize, usize, &Memory) -> Result<(Tensor, Memory)>,
    ) -> Result<Tensor> {
        let mut results = Vec::with_capacity(step.spans.len());
        let mut row = 0;
        for span in &step.spans {
            let slot = span.slot.0 as usize;
            if span.past == 0 {
                self.slots[slot] = self.empty.clone();
            }
            for (rows, save) in span.segments() {
                // If state is saved before the first row, there is nothing to compute.
                if rows > 0 {
                    let (y, memory) = advance(row, rows, &self.slots[slot])?;
                    self.slots[slot] = memory;
                    results.push(y);
                    row += rows;
                }
                if let Some(to) = save {
                    self.copy(span.slot, to);
                }
            }
        }
        Tensor::cat(&results, 0)
    }

    /// Copies slot `from` to slot `to`.
    pub fn copy(&mut self, from: SlotId, to: SlotId) {
        self.slots[to.0 as usize] = self.slots[from.0 as usize].clone();
    }
}

/// State for kernels; they share no memory, since they write new tensors.
#[cfg(feature = "cuda")]
impl TensorState {
    /// The state in `slot`.
    pub fn memory(&self, slot: SlotId) -> alara_cuda::tensors::RecurrentState {
        let Memory { history, matrices } = self.slots[slot.0 as usize].clone();
        alara_cuda::tensors::RecurrentState { history, matrices }
    }

    /// Replaces the state in `slot`.
    pub fn put(&mut self, slot: SlotId, memory: alara_cuda::tensors::RecurrentState) {
        let alara_cuda::tensors::RecurrentState { history, matrices } = memory;
        self.slots[slot.0 as usize] = Memory { history, matrices };
    }
}
