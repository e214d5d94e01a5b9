//! Measures this machine's peak rates, for comparison with a profile.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use memmap2::MmapMut;

use crate::Cpu;
use crate::isa::{Level, for_each_isa};
use crate::prefetch::prefetch;

/// Bytes read by a measurement: far more than fit into caches.
const MEMORY: usize = 256 << 20;
/// Bytes per task.
const PART: usize = 1 << 20;
/// Number of measurements, of which the best counts.
const TRIES: usize = 5;
/// Prefetch distances to try; 0 means no prefetch.
/// The best one differs between machines.
const AHEAD: [usize; 3] = [0, 1 << 10, 4 << 10];

/// Bytes per second that all threads together read from memory, in the best of several ways.
/// Takes a few tenths of a second and 256 MiB.
///
/// # Panics
/// If 256 MiB can't be allocated.
pub fn read_bandwidth(cpu: &Cpu) -> f64 {
    let mut memory = MmapMut::map_anon(MEMORY).expect("256 MiB of memory");
    // Use large pages, so that address translation doesn't slow down reads.
    // If there are none, small ones have to suffice.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    // Not zeros: pages that were never written all map to the same one.
    memory.fill(1);
    let (words, _) = memory.as_chunks::<8>();
    let read = |ahead| {
        best(MEMORY as f64, || {
            cpu.threads.run(MEMORY / PART, &|part| {
                black_box(sum(cpu.isa, words[part * PART / 8..][..PART / 8].as_chunks().0, ahead));
            });
        })
    };
    AHEAD.map(read).into_iter().fold(0.0, f64::max)
}

/// Multiplications and additions of 8-bit integers per second by all threads together, in registers
/// (or tiles) loaded from the L1 cache.
pub fn integer_peak(cpu: &Cpu) -> f64 {
    const ROUNDS: usize = 64;
    let operations = cpu.threads.count() * ROUNDS * round_operations(cpu.isa.level());
    best(operations as f64, || {
        cpu.threads.run(cpu.threads.count(), &|_| {
            for _ in 0..ROUNDS {
                match cpu.isa.level() {
                    Level::Scalar => scalar_round(),
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the value proves that this CPU has the instruction set.
                    level => unsafe { x86::round(level) },
                    #[cfg(target_arch = "aarch64")]
                    // SAFETY: as above.
                    level => unsafe { neon::round(level) },
                }
            }
        });
    })
}

/// The best rate per second for `amount` units of work.
fn best(amount: f64, work: impl Fn()) -> f64 {
    let times = (0..TRIES).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    amount / times.fold(f64::INFINITY, f64::min).max(1e-9)
}

for_each_isa! {
    fn sum(memory: &[[[u8; 8]; 32]], ahead: usize) -> u64 {
        let mut sums = [0u64; 32];
        for words in memory {
            if ahead > 0 {
                prefetch(words.as_ptr().cast::<u8>().wrapping_add(ahead), size_of_val(words));
            }
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum ^= u64::from_le_bytes(*word);
            }
        }
        sums.into_iter().fold(0, |all, sum| all ^ sum)
    }
}

/// Products accumulated per round, each a multiplication and an addition.
fn round_operations(level: Level) -> usize {
    match level {
        Level::Scalar => 2 * SCALAR_PRODUCTS,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => 2 * x86::STEPS * x86::SUMS * 32,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => 2 * x86::STEPS * x86::SUMS * 64,
        #[cfg(target_arch = "x86_64")]
        Level::Amx => crate::matmul::AMX_ROUND_OPERATIONS,
        #[cfg(target_arch = "aarch64")]
        Level::Neon | Level::DotProd => 2 * neon::STEPS * neon::SUMS * 16,
    }
}

const SCALAR_PRODUCTS: usize = 1 << 12;

fn scalar_round() {
    let (w, x) = (black_box([1u8; 64]), black_box([1i8; 64]));
    let mut sums = [0i32; 64];
    for _ in 0..SCALAR_PRODUCTS / 64 {
        for ((sum, w), x) in sums.iter_mut().zip(w).zip(x) {
            *sum += i32::from(w) * i32::from(x);
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::hint::black_box;

    use crate::isa::Level;
    use crate::matmul::{Avx2, Avx512, AvxVnni, Vector, amx_round};

    pub(super) const STEPS: usize = 256;
    /// Independent sums.
    pub(super) const SUMS: usize = 10;

    /// # Safety
    /// The CPU has that instruction set.
    pub(super) unsafe fn round(level: Level) {
        // SAFETY: upheld by the caller.
        unsafe {
            match level {
                Level::Scalar => {}
                Level::Avx2 => avx2(),
                Level::AvxVnni => avxvnni(),
                Level::Avx512 => avx512(),
                Level::Amx => amx_round(),
            }
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    fn avx2() {
        // SAFETY: the function enables the features.
        unsafe { quads::<Avx2>() }
    }

    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    fn avxvnni() {
        // SAFETY: the function enables the features.
        unsafe { quads::<AvxVnni>() }
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn avx512() {
        // SAFETY: the function enables the features.
        unsafe { quads::<Avx512>() }
    }

    #[inline(always)]
    unsafe fn quads<V: Vector>() {
        let x = black_box([0x0101_0101; 16 * SUMS]);
        // SAFETY: the caller enables the features, and whole registers are loaded from `x`.
        unsafe {
            let mut sums = [V::zero(); SUMS];
            for _ in 0..STEPS {
                // Hide the operands: the compiler would merge products that are the same.
                let w = V::load(black_box(&x).as_ptr());
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = V::add_quads::<false>(*sum, w, V::load(x.as_ptr().add(16 * i)));
                }
            }
            let mut all = V::zero();
            for sum in sums {
                all = V::add(all, sum);
            }
            black_box(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cpus;

    #[test]
    fn machines_do_something() {
        for cpu in cpus() {
            let peak = integer_peak(&cpu);
            assert!(peak > 1e7 && peak < 1e16, "{cpu:?}: {peak}");
        }
    }
}
