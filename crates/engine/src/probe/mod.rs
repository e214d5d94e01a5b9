//! The bare decoder, for holding it against a reference and for timing: tokens in, logits out, no
//! text.

mod tools;
mod turns;

use crate::Result;
use crate::architecture::Architecture;
use crate::backend::candle::Candle;
use crate::backend::native::Native;
use crate::backend::split::Split;
use crate::backend::{Backend, Isa, KvType, Profile, default_threads};
use crate::cache::{CacheConfig, Table};
use crate::decoder::Decoder;
use crate::facts::{Facts, Sizes};
use crate::gguf::Gguf;
use crate::offload::{DeviceSummary, Model, Offload, ResolvedDevice};
use crate::pool::{Pool, StepInput};
pub use tools::tools;
pub use turns::ProbeTurns;

/// How to compute.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSettings {
    /// How keys and values are stored.
    pub kv: KvType,
    /// Who computes.
    pub offload: Offload,
    /// Threads that compute, on the CPU.
    pub threads: usize,
    /// With which instructions, on the CPU.
    pub isa: Isa,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        let threads = default_threads();
        ProbeSettings { kv: KvType::F32, offload: Offload::cpu(), threads, isa: Isa::best() }
    }
}

/// One sequence on a bare decoder.
#[derive(Debug)]
pub struct Probe {
    decoder: AnyPool,
    table: Table,
    device: DeviceSummary,
}

#[derive(Debug)]
enum AnyPool {
    Native(Box<Pool<Native>>),
    Candle(Box<Pool<Candle>>),
    Split(Box<Pool<Split<Candle, Native>>>),
}

impl Probe {
    /// Loads the model in `gguf` with a cache for `tokens` tokens.
    ///
    /// # Errors
    /// Whatever stands against loading the model.
    pub fn load(gguf: &Gguf, tokens: usize, settings: &ProbeSettings) -> Result<Self> {
        let architecture = Architecture::of(gguf)?;
        let (kv, config) = (settings.kv, cache_config(gguf, &architecture, tokens)?);
        let model = Model { gguf, architecture: &architecture, config: &config, kv, context: tokens };
        let native = || Native::new(settings.threads, settings.isa);
        let resolved = settings.offload.open(&model)?;
        let device = resolved.summary();
        let decoder = match resolved {
            ResolvedDevice::Cpu => AnyPool::Native(Box::new(pool(&model, native())?)),
            ResolvedDevice::Candle => AnyPool::Candle(Box::new(pool(&model, Candle::cpu())?)),
            ResolvedDevice::Gpu(gpu, placement) => {
                let first = placement.of - placement.layers;
                let backend = Split::new(Candle::on(gpu.device), native(), first);
                AnyPool::Split(Box::new(pool(&model, backend)?))
            }
        };
        Ok(Probe { decoder, table: Table::default(), device })
    }

    /// As [`Probe::load`] on the native backend, which records in `profile` what each operation
    /// takes.
    ///
    /// # Errors
    /// Whatever stands against loading the model.
    pub fn profiled(gguf: &Gguf, tokens: usize, settings: &ProbeSettings, profile: Profile) -> Result<Self> {
        let backend = Native::new(settings.threads, settings.isa).profiled(profile);
        let architecture = Architecture::of(gguf)?;
        let (kv, config) = (settings.kv, cache_config(gguf, &architecture, tokens)?);
        let model = Model { gguf, architecture: &architecture, config: &config, kv, context: tokens };
        let decoder = AnyPool::Native(Box::new(pool(&model, backend)?));
        let device = ResolvedDevice::Cpu.summary();
        Ok(Probe { decoder, table: Table::default(), device })
    }

    /// What computes.
    pub fn device(&self) -> &DeviceSummary {
        &self.device
    }

    /// V, the number of logits in a row.
    pub fn vocabulary(&self) -> usize {
        match &self.decoder {
            AnyPool::Native(pool) => pool.vocabulary(),
            AnyPool::Candle(pool) => pool.vocabulary(),
            AnyPool::Split(pool) => pool.vocabulary(),
        }
    }

    /// Appends `tokens` and gives the logits of the last `outputs` of them.
    /// `[outputs, V]`
    ///
    /// # Errors
    /// If the cache is full, a token is out of range, or the backend fails.
    pub fn feed(&mut self, tokens: &[u32], outputs: usize) -> Result<Vec<f32>> {
        let outputs = outputs.min(tokens.len());
        match &mut self.decoder {
            AnyPool::Native(pool) => pool.forward_one(&mut self.table, tokens, outputs),
            AnyPool::Candle(pool) => pool.forward_one(&mut self.table, tokens, outputs),
            AnyPool::Split(pool) => pool.forward_one(&mut self.table, tokens, outputs),
        }
    }

    /// Appends `tokens` and gives the residual stream after each block, a row a token.
    /// `[L][tokens, D]`
    ///
    /// # Errors
    /// As [`Probe::feed`].
    pub fn layers(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        fn observed<B: Backend>(
            pool: &mut Pool<B>,
            table: &mut Table,
            tokens: &[u32],
        ) -> Result<Vec<Vec<f32>>> {
            let mut layers = Vec::new();
            if !pool.reserve(table, tokens.len())? {
                return Err(crate::Error::OutOfBlocks { capacity: pool.capacity() });
            }
            let mut observer = |_, rows| layers.push(rows);
            pool.forward_observed(
                &mut [StepInput { table, tokens, drafted: &[], outputs: 0, saves: Vec::new() }],
                Some(&mut observer),
            )?;
            Ok(layers)
        }
        match &mut self.decoder {
            AnyPool::Native(pool) => observed(pool, &mut self.table, tokens),
            AnyPool::Candle(pool) => observed(pool, &mut self.table, tokens),
            AnyPool::Split(pool) => observed(pool, &mut self.table, tokens),
        }
    }

    /// Starts over with an empty sequence.
    pub fn clear(&mut self) {
        let table = std::mem::take(&mut self.table);
        match &mut self.decoder {
            AnyPool::Native(pool) => pool.release(table),
            AnyPool::Candle(pool) => pool.release(table),
            AnyPool::Split(pool) => pool.release(table),
        }
    }
}

/// The cache for one sequence of up to `tokens` tokens, which may come in one step.
fn cache_config(gguf: &Gguf, architecture: &Architecture, tokens: usize) -> Result<CacheConfig> {
    let window = Sizes::of(&Facts::new(gguf, architecture)?)?.window;
    Ok(CacheConfig::new(tokens, 1, tokens, window))
}

/// A decoder with its blocks.
fn pool<B: Backend>(model: &Model, backend: B) -> Result<Pool<B>> {
    let Model { gguf, architecture, config, kv, .. } = *model;
    Ok(Pool::new(Decoder::load_as(gguf, architecture, backend, config, kv)?, config))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod whole_tests;
