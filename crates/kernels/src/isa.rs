//! Instruction sets: their detection, and compilation of one source for all of them.
#![allow(unsafe_code)]

/// An instruction set that this CPU supports: a value proves it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Isa(Level);

/// The instruction sets with kernels, each of which includes all of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The baseline of the target.
    Scalar,
    /// AVX2, FMA and F16C: x86 from 2013 on.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-VNNI: dot products of bytes in registers of 256 bits; Intel's client CPUs from 2021 on,
    /// AMD's from 2024 on.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// AVX-512 with VNNI: Intel's servers from 2019 on, AMD's CPUs from 2022 on.
    /// AVX-VNNI isn't needed.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AMX with int8: products of tiles; Intel's servers from 2023 on.
    #[cfg(target_arch = "x86_64")]
    Amx,
    /// NEON: every 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// NEON with FEAT_DotProd, dot products of bytes: ARM's cores from 2017 on, Apple's M1.
    #[cfg(target_arch = "aarch64")]
    DotProd,
}

impl Isa {
    /// Plain Rust: runs anywhere, and is the reference for the others.
    pub const SCALAR: Isa = Isa(Level::Scalar);

    /// The fastest one that this CPU supports.
    pub fn best() -> Isa {
        Isa::available().last().unwrap_or(Isa::SCALAR)
    }

    /// All that this CPU supports, slowest first.
    pub fn available() -> impl Iterator<Item = Isa> {
        #[cfg(target_arch = "x86_64")]
        let more = x86::available();
        #[cfg(target_arch = "aarch64")]
        let more = {
            // NEON is part of the target.
            let dotprod = std::arch::is_aarch64_feature_detected!("dotprod");
            [Some(Isa(Level::Neon)), dotprod.then_some(Isa(Level::DotProd))].into_iter().flatten()
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let more = std::iter::empty();
        std::iter::once(Isa::SCALAR).chain(more)
    }

    /// The one with this [`Isa::name`]; `None` if it is unknown or this CPU lacks it.
    pub fn named(name: &str) -> Option<Isa> {
        Isa::available().find(|isa| isa.name() == name)
    }

    /// `scalar`; on x86 `avx2` (with FMA and F16C), `avxvnni`, `avx512` (with VNNI) or `amx` (with
    /// AVX-512); on ARM `neon` or `dotprod` (NEON with FEAT_DotProd).
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    pub(crate) fn level(self) -> Level {
        self.0
    }
}

impl Level {
    /// All with kernels in this build.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const ALL: &[Level] = &[Level::Scalar, Level::Avx2, Level::AvxVnni, Level::Avx512, Level::Amx];
    /// All with kernels in this build.
    #[cfg(target_arch = "aarch64")]
    pub(crate) const ALL: &[Level] = &[Level::Scalar, Level::Neon, Level::DotProd];
    /// All with kernels in this build.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) const ALL: &[Level] = &[Level::Scalar];

    /// As [`Isa::name`].
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::AvxVnni => "avxvnni",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Amx => "amx",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Level::DotProd => "dotprod",
        }
    }
}

impl std::fmt::Debug for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::{asm, x86_64::__cpuid_count};
    use std::sync::LazyLock;

    use super::{Isa, Level};

    pub(super) fn available() -> impl Iterator<Item = Isa> {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avxvnni = avx2 && is_x86_feature_detected!("avxvnni");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        let levels = [
            (avx2, Level::Avx2),
            (avxvnni, Level::AvxVnni),
            (avx512, Level::Avx512),
            (avx512 && *AMX, Level::Amx),
        ];
        levels.into_iter().filter_map(|(there, level)| there.then_some(Isa(level)))
    }

    /// Whether the CPU supports tiles with int8 and the system lets this process use them.
    static AMX: LazyLock<bool> = LazyLock::new(|| {
        // Leaf 7: bit 24 of EDX is AMX-TILE, bit 25 AMX-INT8.
        let tiles = __cpuid_count(7, 0).edx >> 24 & 3 == 3;
        tiles && permitted()
    });

    /// Requests permission for the tiles' state from Linux, which not every process has:
    /// `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)`.
    /// The permission holds for all threads.
    /// Source: Linux, Documentation/arch/x86/xstate.rst.
    #[cfg(target_os = "linux")]
    fn permitted() -> bool {
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
        const XTILEDATA: u64 = 18;
        let result: i64;
        // SAFETY: a system call that takes numbers and writes none of our memory.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => result,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        result == 0
    }

    /// Only Linux is known to support this request.
    #[cfg(not(target_os = "linux"))]
    fn permitted() -> bool {
        false
    }
}

/// Defines functions with an [`Isa`] and the given arguments, whose body is compiled for every
/// instruction set.
/// Functions called by the body must be `#[inline(always)]` to be compiled with it.
macro_rules! for_each_isa {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block)+) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::Isa, $($arg: $type),*) $(-> $out)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn scalar($($arg: $type),*) $(-> $out)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $type),*) $(-> $out)? {
                scalar($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $type),*) $(-> $out)? {
                scalar($($arg),*)
            }
            match isa.level() {
                $crate::isa::Level::Scalar => scalar($($arg),*),
                #[cfg(target_arch = "x86_64")]
                #[allow(unsafe_code)]
                // SAFETY: the value proves that this CPU has the instruction set.
                $crate::isa::Level::Avx2 | $crate::isa::Level::AvxVnni => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                #[allow(unsafe_code)]
                // SAFETY: as above.
                $crate::isa::Level::Avx512 | $crate::isa::Level::Amx => unsafe { avx512($($arg),*) },
                // Plain Rust is compiled with NEON, which is part of the target.
                #[cfg(target_arch = "aarch64")]
                $crate::isa::Level::Neon | $crate::isa::Level::DotProd => scalar($($arg),*),
            }
        }
    )+};
}
pub(crate) use for_each_isa;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_what_is_available() {
        for isa in Isa::available() {
            assert_eq!(Isa::named(isa.name()), Some(isa));
        }
        assert_eq!(Isa::named("scalar"), Some(Isa::SCALAR));
        assert_eq!(Isa::named("mmx"), None);
    }
}
