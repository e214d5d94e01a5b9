//! The bare decoder, for holding it against a reference and for timing: tokens in, logits out, no
//! text.

mod tools;
mod turns;

use crate::Result;
use crate::architecture::Architecture;
use crate::backend::candle::Candle;
use crate::backend::native::Native;
use crate::backend::split::Split;
use crate::backend::{Backend, Isa, KvType, Profile, Profiled, default_threads};
use crate::cache::{Room, Table};
use crate::decoder::Decoder;
use crate::device::Device;
use crate::facts::{Facts, Sizes};
use crate::gguf::Gguf;
use crate::offload::{Ground, Model, Offload, Place};
use crate::pool::{Part, Pool};
pub use tools::tools;
pub use turns::ProbeTurns;

/// How to compute.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSettings {
    /// How keys and values are kept.
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
    decoder: Inner,
    table: Table,
    place: Place,
}

#[derive(Debug)]
enum Inner {
    Native(Box<Pool<Native>>),
    Profiled(Box<Pool<Profiled>>),
    Candle(Box<Pool<Candle>>),
    Split(Box<Pool<Split<Candle, Native>>>),
}

impl Probe {
    /// Loads the model in `gguf` with room for `tokens` tokens.
    ///
    /// # Errors
    /// As [`Decoder::load_as`].
    pub fn load(gguf: &Gguf, tokens: usize, settings: &ProbeSettings) -> Result<Self> {
        let architecture = Architecture::of(gguf)?;
        let (kv, room) = (settings.kv, room(gguf, &architecture, tokens)?);
        let model = Model { gguf, architecture: &architecture, room: &room, kv, context: tokens };
        let native = || Native::new(settings.threads, settings.isa);
        let ground = settings.offload.open(&model)?;
        let place = ground.place();
        let decoder = match ground {
            Ground::Host => Inner::Native(Box::new(pool(&model, native())?)),
            Ground::Oracle => Inner::Candle(Box::new(pool(&model, Candle::cpu())?)),
            Ground::Gpu(gpu, placement) => {
                let first = placement.of - placement.layers;
                let backend = Split::new(Candle::on(gpu.device), native(), first);
                Inner::Split(Box::new(pool(&model, backend)?))
            }
        };
        Ok(Probe { decoder, table: Table::default(), place })
    }

    /// As [`Probe::load`] on the native backend, which records in `profile` what each operation
    /// takes.
    ///
    /// # Errors
    /// As [`Decoder::load_as`].
    pub fn profiled(gguf: &Gguf, tokens: usize, settings: &ProbeSettings, profile: Profile) -> Result<Self> {
        let backend = Profiled::new(Native::new(settings.threads, settings.isa), profile);
        let architecture = Architecture::of(gguf)?;
        let room = room(gguf, &architecture, tokens)?;
        let kv = settings.kv;
        let pool =
            pool(&Model { gguf, architecture: &architecture, room: &room, kv, context: tokens }, backend)?;
        let place = Place { device: Device::Cpu, gpu: String::new(), layers: 0 };
        Ok(Probe { decoder: Inner::Profiled(Box::new(pool)), table: Table::default(), place })
    }

    /// What computes.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// V, the number of logits in a row.
    pub fn vocabulary(&self) -> usize {
        match &self.decoder {
            Inner::Native(pool) => pool.vocabulary(),
            Inner::Profiled(pool) => pool.vocabulary(),
            Inner::Candle(pool) => pool.vocabulary(),
            Inner::Split(pool) => pool.vocabulary(),
        }
    }

    /// Appends `tokens` and gives the logits of the last `outputs` of them.
    /// `[outputs, V]`
    ///
    /// # Errors
    /// If there is no room, a token is out of range, or the backend fails.
    pub fn feed(&mut self, tokens: &[u32], outputs: usize) -> Result<Vec<f32>> {
        let outputs = outputs.min(tokens.len());
        match &mut self.decoder {
            Inner::Native(pool) => pool.forward_one(&mut self.table, tokens, outputs),
            Inner::Profiled(pool) => pool.forward_one(&mut self.table, tokens, outputs),
            Inner::Candle(pool) => pool.forward_one(&mut self.table, tokens, outputs),
            Inner::Split(pool) => pool.forward_one(&mut self.table, tokens, outputs),
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
                &mut [Part { table, tokens, drafted: &[], outputs: 0, saves: Vec::new() }],
                Some(&mut observer),
            )?;
            Ok(layers)
        }
        match &mut self.decoder {
            Inner::Native(pool) => observed(pool, &mut self.table, tokens),
            Inner::Profiled(pool) => observed(pool, &mut self.table, tokens),
            Inner::Candle(pool) => observed(pool, &mut self.table, tokens),
            Inner::Split(pool) => observed(pool, &mut self.table, tokens),
        }
    }

    /// Starts over with an empty sequence.
    pub fn clear(&mut self) {
        let table = std::mem::take(&mut self.table);
        match &mut self.decoder {
            Inner::Native(pool) => pool.release(table),
            Inner::Profiled(pool) => pool.release(table),
            Inner::Candle(pool) => pool.release(table),
            Inner::Split(pool) => pool.release(table),
        }
    }
}

/// Room for one sequence of up to `tokens` tokens, which may come in one step.
fn room(gguf: &Gguf, architecture: &Architecture, tokens: usize) -> Result<Room> {
    let window = Sizes::of(&Facts::new(gguf, architecture)?)?.window;
    Ok(Room::new(tokens, 1, tokens, window))
}

/// A decoder with its blocks.
fn pool<B: Backend>(model: &Model, backend: B) -> Result<Pool<B>> {
    let Model { gguf, architecture, room, kv, .. } = *model;
    Ok(Pool::new(Decoder::load_as(gguf, architecture, backend, room, kv)?, room))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod whole_tests;
