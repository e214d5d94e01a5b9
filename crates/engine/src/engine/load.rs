//! Loads a model file and starts the thread that owns the model.

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

/// Everything needed to start the thread that owns a model.
pub struct Start<'a> {
    pub model: Model<'a>,
    pub options: &'a Options,
    pub tokenizer: &'a Tokenizer,
    pub queue: mpsc::Receiver<Job>,
    /// Receives the number of tokens in the KV cache.
    pub used: Arc<AtomicUsize>,
}

impl Start<'_> {
    /// Starts the thread with the model on `backend`, with a host memory tier of `host_bytes`
    /// bytes.
    /// Also returns whether rows are independent of the other rows in their step.
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

/// Resolves the device for a model.
/// An encoder is small and has no cache: it stays on the CPU.
pub fn resolve(model: &Model, options: &Options) -> Result<ResolvedDevice> {
    match (model.architecture.encoder, options.offload.device) {
        (true, Device::Candle) => Ok(ResolvedDevice::Candle(Device::candle()?)),
        (true, _) => Ok(ResolvedDevice::Cpu),
        (false, _) => options.offload.open(model),
    }
}

/// A fingerprint of everything that keys and values depend on besides their tokens.
/// If a row's numbers don't depend on the other rows in its step, the cache is bitwise equal to a
/// fresh computation.
/// Files from a device must not break that: so there are two kinds of files, of the CPU and of
/// everything else; their numbers agree within rounding.
fn fingerprint(
    gguf: &Gguf,
    architecture: &Architecture,
    tokenizer: &Tokenizer,
    kv: KvType,
    (invariant, is_long): (bool, bool),
) -> Fingerprint {
    // Sizes, quantization and rope settings are in the model's own bytes; the rest is in the
    // architecture file.
    // The choice of rotation may depend on the maximum length of sequences.
    let read = format!("{architecture:?} {kv:?} {} {is_long}", if invariant { "exact" } else { "rounded" });
    Fingerprint::of(&[&gguf.identity(), &tokenizer.fingerprint(), read.as_bytes()])
}
