//! Decides which layers of a model go on a GPU, by numbers alone, without knowing any device.
//!
//! The last blocks go there together with the output, so that activations are transferred once per
//! step.
//! The embedding table stays on the host, which looks up a row as fast as a device.

use alara_text::gguf::Gguf;

use crate::Result;
use crate::architecture::Architecture;
use crate::backend::KvType;
use crate::cache::CacheConfig;
use crate::memory::{MemoryBreakdown, MemoryEstimate, shown};

/// Memory kept free on a GPU: for the workspaces of its libraries, and for fragmentation.
/// An estimate.
pub const SPARE: u64 = 256 << 20;

/// The placement of a model on GPU and host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Number of blocks on the GPU, which are the last ones.
    pub layers: usize,
    /// Total number of blocks.
    pub of: usize,
    /// The GPU's memory.
    pub gpu: MemoryEstimate,
    /// The host's memory.
    pub host: MemoryEstimate,
}

/// Why a model can't be placed as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Number of blocks to be placed: as requested, otherwise one.
    pub layers: usize,
    /// Total number of blocks.
    pub of: usize,
    /// The memory that they take there.
    pub needs: MemoryEstimate,
    /// Bytes available there.
    pub budget: u64,
    /// Number of blocks that fit.
    pub fit: usize,
}

impl Refusal {
    /// The error message.
    pub fn message(&self, context: usize) -> String {
        let Refusal { layers, of, needs, budget, fit } = self;
        let them = match (layers, of) {
            (layers, of) if layers == of => format!("all {of} layers take"),
            (1, _) => format!("even one of the {of} layers takes"),
            _ => format!("{layers} of {of} layers take"),
        };
        let remedy = match fit {
            0 => "take a smaller context (--ctx), keep keys and values in eight bits (--kv q8_0), or compute on the CPU \
                  (--device cpu)"
                .to_owned(),
            fit => format!("{fit} of them fit (--gpu-layers {fit}, or auto)"),
        };
        let budget = shown(*budget);
        format!(
            "on the GPU {them} {needs} at a context of {context} tokens, but {budget} can be had; {remedy}"
        )
    }
}

impl MemoryBreakdown {
    /// The GPU's memory with the last `layers` blocks there.
    pub fn gpu(&self, layers: usize) -> MemoryEstimate {
        let Some(first) = self.blocks.len().checked_sub(layers).filter(|_| layers > 0) else {
            return MemoryEstimate::default();
        };
        let sum = self.blocks[first..].iter().fold(MemoryEstimate::default(), |sum, block| MemoryEstimate {
            weights: sum.weights.saturating_add(block.on_gpu),
            kv: sum.kv.saturating_add(block.kv),
            state: sum.state.saturating_add(block.state),
            working: 0,
        });
        MemoryEstimate {
            weights: sum.weights.saturating_add(self.output.on_gpu),
            working: self.scratch.saturating_add(self.scores).saturating_add(SPARE),
            ..sum
        }
    }

    /// The host's memory with the last `layers` blocks on the GPU.
    pub fn host(&self, layers: usize) -> MemoryEstimate {
        if layers == 0 {
            return self.whole;
        }
        let first = self.blocks.len().saturating_sub(layers);
        let there = self.blocks[first..].iter().chain([&self.output]);
        there.fold(self.whole, |left, share| MemoryEstimate {
            weights: left.weights.saturating_sub(share.weights),
            kv: left.kv.saturating_sub(share.kv),
            state: left.state.saturating_sub(share.state),
            working: left.working,
        })
    }

    /// Places as many blocks on a GPU with `budget` bytes as fit, or as many as were `asked` for;
    /// a larger number means all.
    ///
    /// # Errors
    /// If the requested blocks don't fit, or not even one does.
    pub fn place(&self, budget: u64, asked: Option<usize>) -> std::result::Result<Placement, Refusal> {
        let of = self.blocks.len();
        let fits = |layers: &usize| self.gpu(*layers).total() <= budget;
        let fit = (1..=of).take_while(fits).last().unwrap_or(0);
        let layers = asked.map_or(fit.max(1), |asked| asked.min(of));
        if layers > fit {
            return Err(Refusal { layers, of, needs: self.gpu(layers), budget, fit });
        }
        Ok(Placement { layers, of, gpu: self.gpu(layers), host: self.host(layers) })
    }

    /// The breakdown for the model in `gguf` with a cache for one sequence of `context` tokens.
    ///
    /// # Errors
    /// As [`MemoryEstimate::of`].
    pub fn of(gguf: &Gguf, context: usize, kv: KvType) -> Result<Self> {
        let architecture = Architecture::of(gguf)?;
        let budgets = (None, crate::memory::SNAPSHOT_BYTES);
        let config: CacheConfig =
            crate::memory::cache_config(gguf, &architecture, (context, 1, 1), kv, budgets)?;
        MemoryBreakdown::with_cache(gguf, &architecture, &config, kv)
    }
}

#[cfg(test)]
mod tests;
