//! The bare decoder, for comparison with a reference and for benchmarks: tokens in, logits out, no
//! text.

mod turns;

use alara_text::gguf::Gguf;

use crate::Result;
use crate::architecture::Architecture;
#[cfg(feature = "candle")]
use crate::backend::candle::Candle;
use crate::backend::native::Native;
#[cfg(feature = "candle")]
use crate::backend::split::Split;
use crate::backend::{Backend, Isa, KvType, Profile, default_threads};
use crate::cache::{CacheConfig, Table};
use crate::decoder::Decoder;
use crate::facts::{Facts, Sizes};
use crate::offload::{DeviceSummary, Model, Offload, ResolvedDevice};
use crate::pool::{Pool, StepInput};
pub use alara_text::tools::tools;
pub use turns::ProbeTurns;

/// Settings of the computation.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSettings {
    /// Number format of keys and values.
    pub kv: KvType,
    /// Device and layers.
    pub offload: Offload,
    /// Number of CPU threads.
    pub threads: usize,
    /// Instruction set on the CPU.
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
    decoder: Box<dyn AnyPool>,
    table: Table,
    device: DeviceSummary,
}

/// A pool on any backend.
trait AnyPool: std::fmt::Debug {
    fn vocabulary(&self) -> usize;
    fn forward(&mut self, table: &mut Table, tokens: &[u32], outputs: usize) -> Result<Vec<f32>>;
    fn layers(&mut self, table: &mut Table, tokens: &[u32]) -> Result<Vec<Vec<f32>>>;
    fn release(&mut self, table: Table);
}

impl<B: Backend> AnyPool for Pool<B> {
    fn vocabulary(&self) -> usize {
        self.vocabulary()
    }

    fn forward(&mut self, table: &mut Table, tokens: &[u32], outputs: usize) -> Result<Vec<f32>> {
        self.forward_one(table, tokens, outputs)
    }

    fn layers(&mut self, table: &mut Table, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        let mut layers = Vec::new();
        if !self.reserve(table, tokens.len())? {
            return Err(crate::Error::OutOfBlocks { capacity: self.capacity() });
        }
        let mut observer = |_, rows| layers.push(rows);
        self.forward_observed(
            &mut [StepInput { table, tokens, drafted: &[], outputs: 0, saves: Vec::new() }],
            Some(&mut observer),
        )?;
        Ok(layers)
    }

    fn release(&mut self, table: Table) {
        self.release(table);
    }
}

impl Probe {
    /// Loads the model in `gguf` with a cache for `tokens` tokens.
    ///
    /// # Errors
    /// Any error of loading the model.
    pub fn load(gguf: &Gguf, tokens: usize, settings: &ProbeSettings) -> Result<Self> {
        let architecture = Architecture::of(gguf)?;
        let (kv, config) = (settings.kv, cache_config(gguf, &architecture, tokens)?);
        let model = Model { gguf, architecture: &architecture, config: &config, kv, context: tokens };
        let native = || Native::new(settings.threads, settings.isa);
        let resolved = settings.offload.open(&model)?;
        let device = resolved.summary();
        let decoder = match resolved {
            ResolvedDevice::Cpu => pool(&model, native())?,
            #[cfg(feature = "candle")]
            ResolvedDevice::Candle(device) => pool(&model, Candle::on(device))?,
            #[cfg(feature = "candle")]
            ResolvedDevice::Gpu(gpu, placement) => {
                let first = placement.of - placement.layers;
                pool(&model, Split::new(Candle::on(gpu.handle), native(), first))?
            }
        };
        Ok(Probe { decoder, table: Table::default(), device })
    }

    /// As [`Probe::load`] on the native backend, recording the cost of each operation in `profile`.
    ///
    /// # Errors
    /// Any error of loading the model.
    pub fn profiled(gguf: &Gguf, tokens: usize, settings: &ProbeSettings, profile: Profile) -> Result<Self> {
        let backend = Native::new(settings.threads, settings.isa).profiled(profile);
        let architecture = Architecture::of(gguf)?;
        let (kv, config) = (settings.kv, cache_config(gguf, &architecture, tokens)?);
        let model = Model { gguf, architecture: &architecture, config: &config, kv, context: tokens };
        let decoder = pool(&model, backend)?;
        let device = ResolvedDevice::Cpu.summary();
        Ok(Probe { decoder, table: Table::default(), device })
    }

    /// The device in use.
    pub fn device(&self) -> &DeviceSummary {
        &self.device
    }

    /// V, the number of logits in a row.
    pub fn vocabulary(&self) -> usize {
        self.decoder.vocabulary()
    }

    /// Appends `tokens` and returns the logits after the last `outputs` of them.
    /// `[outputs, V]`
    ///
    /// # Errors
    /// If the cache is full, a token is out of range, or the backend fails.
    pub fn feed(&mut self, tokens: &[u32], outputs: usize) -> Result<Vec<f32>> {
        let outputs = outputs.min(tokens.len());
        self.decoder.forward(&mut self.table, tokens, outputs)
    }

    /// Appends `tokens` and returns the residual stream after each block, one row per token.
    /// `[L][tokens, D]`
    ///
    /// # Errors
    /// As [`Probe::feed`].
    pub fn layers(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        self.decoder.layers(&mut self.table, tokens)
    }

    /// Starts over with an empty sequence.
    pub fn clear(&mut self) {
        let table = std::mem::take(&mut self.table);
        self.decoder.release(table);
    }
}

/// The cache for one sequence of up to `tokens` tokens, possibly fed in one step.
fn cache_config(gguf: &Gguf, architecture: &Architecture, tokens: usize) -> Result<CacheConfig> {
    let window = Sizes::of(&Facts::new(gguf, architecture)?)?.window;
    Ok(CacheConfig::new(tokens, 1, tokens, window))
}

/// A decoder with its cache.
fn pool<B: Backend + 'static>(model: &Model, backend: B) -> Result<Box<dyn AnyPool>> {
    let Model { gguf, architecture, config, kv, .. } = *model;
    Ok(Box::new(Pool::new(Decoder::load_as(gguf, architecture, backend, config, kv)?, config)))
}
