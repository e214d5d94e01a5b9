//! Compute settings of the engine: threads from the command line, instruction set from the
//! environment.

use alara_engine::{Isa, default_threads};
use anyhow::anyhow;

/// Validates a number of threads.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("a number from 1 to 1024 is wanted".to_owned()),
    }
}

/// Validates a context length in tokens.
pub fn context(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(tokens) if tokens > 0 => Ok(tokens),
        _ => Err("a number of tokens from 1 up is wanted".to_owned()),
    }
}

/// Returns the requested number of threads, else the engine's default.
pub fn threads_or_default(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(default_threads)
}

/// Returns the instruction set named by `ALARA_ISA`, else the best one that the CPU supports.
pub fn isa() -> anyhow::Result<Isa> {
    let Some(name) = std::env::var_os("ALARA_ISA") else { return Ok(Isa::best()) };
    let name = name.to_string_lossy();
    Isa::named(&name).ok_or_else(|| {
        let known: Vec<&str> = Isa::available().map(Isa::name).collect();
        anyhow!("ALARA_ISA names `{name}`, which this CPU does not have\nhint: it has {}", known.join(", "))
    })
}
