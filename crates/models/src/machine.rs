//! Which models fit this machine's memory, and which one to begin with.

use alara_engine::default_threads;
use alara_engine::inspect::gpus;

use crate::catalog::Entry;
use crate::memory;
use crate::size::bytes;

/// Maximum bytes to read per token and thread for acceptable speed.
const BYTES_A_THREAD: f64 = 1.25e9;

/// Memory that the system and its programs use, in bytes.
const OTHERS: u64 = 2_500_000_000;

/// Properties of a machine that decide which model to suggest.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Total memory in bytes, used or not, if the system reports it.
    pub memory: Option<u64>,
    /// How many threads compute, unless the user says otherwise.
    pub threads: usize,
    /// The GPU with the most memory that this build supports, and its free bytes.
    pub gpu: Option<(String, u64)>,
}

impl Machine {
    /// This machine.
    pub fn this() -> Machine {
        let opened = gpus().into_iter().filter_map(|(_, opened)| opened.ok());
        Machine {
            memory: memory::total(),
            threads: default_threads(),
            gpu: opened.map(|gpu| (gpu.name, gpu.free)).max_by_key(|(_, free)| *free),
        }
    }

    fn gpu_bytes(&self) -> u64 {
        self.gpu.as_ref().map_or(0, |(_, free)| *free)
    }

    /// Whether a model runs well in this machine's memory, next to other programs.
    /// It needs the size of its file, an eighth of that for the KV cache and activations, and 2.5
    /// GB for the system and its programs.
    /// Layers on a GPU need no system memory.
    /// `None` if its size or the memory is unknown.
    pub fn fits(&self, entry: &Entry) -> Option<bool> {
        self.holds(entry.size?)
    }

    /// Like [`fits`](Self::fits), for a file of `size` bytes.
    pub fn holds(&self, size: u64) -> Option<bool> {
        let needed = size.saturating_add(size / 8).saturating_sub(self.gpu_bytes()).saturating_add(OTHERS);
        Some(needed <= self.memory?)
    }

    /// Whether tokens come at an acceptable speed: each thread has to read a limited number of
    /// bytes per token.
    /// Reads by a GPU take negligible time in comparison.
    pub fn is_bearable(&self, entry: &Entry) -> bool {
        let size = entry.size.unwrap_or(0);
        let share = size.saturating_sub(self.gpu_bytes()) as f64 / size.max(1) as f64;
        let read = size as f64 * share * entry.active.unwrap_or(entry.parameters) / entry.parameters;
        read <= BYTES_A_THREAD * self.threads as f64
    }

    /// Returns the model to begin with, among suggested `entries` that fit.
    /// Picks the largest one that isn't too slow, else the smallest.
    pub fn choice<'a>(&self, entries: &'a [Entry]) -> Option<&'a Entry> {
        let fitting = || entries.iter().filter(|entry| entry.choice && self.fits(entry) != Some(false));
        let size = |entry: &&Entry| entry.size;
        fitting()
            .filter(|entry| self.is_bearable(entry))
            .max_by_key(size)
            .or_else(|| fitting().min_by_key(size))
    }

    /// Explains the choice.
    pub fn why(&self, choice: &Entry) -> String {
        match self.is_bearable(choice) {
            true => "the largest of those to begin with that fits and is not too slow here".to_owned(),
            false => "the smallest of those to begin with: all are slow here".to_owned(),
        }
    }

    /// Describes the machine's memory and GPU.
    pub fn described(&self) -> String {
        let memory = self
            .memory
            .map_or_else(|| "memory unknown".to_owned(), |held| format!("{} of memory", bytes(held)));
        let threads = format!("{} thread{}", self.threads, if self.threads == 1 { "" } else { "s" });
        match &self.gpu {
            Some((name, free)) => format!("{memory}, {threads}, {name} with {} free", bytes(*free)),
            None => format!("{memory}, {threads}, no GPU that this build uses"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{entries, find};

    /// Advertised memory sizes are in GB, and the system keeps some of it for itself.
    #[test]
    fn what_to_take_on_which_machine() {
        let machine = |gigabytes: u64, threads| {
            let memory = Some(gigabytes * (1 << 30) * 97 / 100);
            Machine { memory, threads, gpu: None }
        };
        let entries = entries().unwrap();
        let check = |gigabytes: u64, threads, expected: Option<&str>| {
            let found = machine(gigabytes, threads).choice(entries).map(|entry| entry.name.as_str());
            assert_eq!(found, expected, "{gigabytes} GB, {threads} threads");
        };
        check(2, 8, None);
        check(4, 8, Some("qwen3.5-0.8b"));
        check(8, 8, Some("qwen3.5-4b"));
        check(8, 2, Some("qwen3.5-2b"));
        check(16, 8, Some("qwen3.5-9b"));
        check(16, 1, Some("qwen3.5-0.8b"));
        // Only three of its 36 billion parameters are active per token.
        check(32, 2, Some("qwen3.5-35b-a3b"));
        check(64, 8, Some("qwen3.5-35b-a3b"));
        // A GPU holds what doesn't fit in memory, and reads it faster.
        let with_gpu =
            |gigabytes, gpu: u64| Machine { gpu: Some(("GPU".into(), gpu << 30)), ..machine(gigabytes, 1) };
        let check_gpu = |gigabytes, gpu, expected: &str| {
            let machine = with_gpu(gigabytes, gpu);
            let found = machine.choice(entries).unwrap();
            assert_eq!(found.name, expected, "{gigabytes} GB, GPU of {gpu}");
            assert!(
                machine.why(found).starts_with("the largest") && machine.described().contains("GPU with")
            );
        };
        check_gpu(4, 4, "qwen3.5-4b");
        check_gpu(8, 8, "qwen3.5-9b");
        check_gpu(16, 24, "qwen3.5-35b-a3b");
        for gigabytes in [8, 16, 32] {
            let fits = |entry: &&Entry| machine(gigabytes, 8).fits(entry) == Some(true);
            assert!(entries.iter().filter(fits).count() >= 5, "{gigabytes} GB");
        }
        let olmo = find("olmo2-13b").unwrap().unwrap();
        assert_eq!(machine(64, 8).fits(olmo), None, "its size is not known");
    }
}
