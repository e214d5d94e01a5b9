//! From a model file to the thread that owns the model.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread::JoinHandle;

use alara_text::gguf::Gguf;
use alara_text::tokenizer::Tokenizer;

use super::serve::{Job, start};
use super::{Options, embed};
use crate::architecture::Architecture;
use crate::backend::{Backend, KvType};
use crate::cache::disk::{Disk, Fingerprint};
use crate::decoder::Decoder;
use crate::device::Device;
use crate::encoder::Encoder;
use crate::facts::Facts;
use crate::offload::{Model, ResolvedDevice};
use crate::pool::Pool;
use crate::{Error, Result};

/// What it takes to start the thread that owns a model.
pub struct Start<'a> {
    pub model: Model<'a>,
    pub options: &'a Options,
    pub tokenizer: &'a Tokenizer,
    pub queue: mpsc::Receiver<Job>,
    /// Where it tells how full the KV cache is.
    pub used: Arc<AtomicUsize>,
}

impl Start<'_> {
    /// Starts it with the model on `backend`, with so many bytes of the host's memory beside the
    /// device's.
    /// Says too whether rows don't depend on what shares their step.
    pub fn on<B>(self, backend: B, host_bytes: u64) -> Result<(JoinHandle<()>, bool)>
    where
        B: Backend + Send + 'static,
        Pool<B>: Send + 'static,
        Encoder<B>: Send + 'static,
    {
        let Start { model: Model { gguf, architecture, config, .. }, options, tokenizer, queue, used } = self;
        let failed = |error: std::io::Error| Error::Backend {
            operation: "start the engine's thread".into(),
            message: error.to_string(),
        };
        if architecture.encoder {
            let encoder = Encoder::load(gguf, architecture, backend, config.context)?;
            return Ok((embed::start(encoder, queue).map_err(failed)?, false));
        }
        let decoder = Decoder::load_as(gguf, architecture, backend, config, options.kv)?;
        let invariant = decoder.is_row_invariant();
        let is_long = Facts::new(gguf, architecture)?.is_long(config.context)?;
        let disk = options.disk.as_ref().and_then(|disk| {
            let fingerprint = fingerprint(gguf, architecture, tokenizer, options.kv, (invariant, is_long));
            Disk::new(disk.clone(), gguf.name(), fingerprint)
        });
        let pool = Pool::new(decoder, config)
            .with_disk(disk)
            .with_host_tier(host_bytes)
            .with_steady_decoding(options.steady);
        Ok((start(pool, queue, used).map_err(failed)?, invariant))
    }
}

/// Who computes a model.
/// An encoder is small, and has no cache: it stays on the CPU.
pub fn resolve(model: &Model, options: &Options) -> Result<ResolvedDevice> {
    match (model.architecture.encoder, options.offload.device) {
        (true, Device::Candle) => Ok(ResolvedDevice::Candle(Device::candle()?)),
        (true, _) => Ok(ResolvedDevice::Cpu),
        (false, _) => options.offload.open(model),
    }
}

/// Everything that keys and values depend on beside the tokens that they are of.
/// Where a row's numbers don't depend on what shares its step, the cache gives the same bits as a
/// fresh computation.
/// No file from a device may change that: so there are two sorts of files, of the CPU and of
/// everything else, whose numbers agree within rounding.
fn fingerprint(
    gguf: &Gguf,
    architecture: &Architecture,
    tokenizer: &Tokenizer,
    kv: KvType,
    (invariant, is_long): (bool, bool),
) -> Fingerprint {
    // Sizes, quantization and rope settings are in the model's own bytes; what these lack is in the
    // architecture file.
    // Which rotation is taken may depend on how long sequences may be.
    let read = format!("{architecture:?} {kv:?} {} {is_long}", if invariant { "exact" } else { "rounded" });
    Fingerprint::of(&[&gguf.identity(), &tokenizer.fingerprint(), read.as_bytes()])
}
