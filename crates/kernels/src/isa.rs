//! Instruction sets: which there are, and how one source serves all of them.
#![allow(unsafe_code)]

/// An instruction set that this CPU has: a value is the proof.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Isa(Level);

/// The instruction sets that kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// What every CPU of the target has.
    Scalar,
    /// AVX2, FMA and F16C: x86 from 2013 on.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Isa {
    /// Plain Rust: runs anywhere, and is what the others are held against.
    pub const SCALAR: Isa = Isa(Level::Scalar);

    /// The fastest that this CPU has.
    pub fn best() -> Isa {
        Isa::available().last().unwrap_or(Isa::SCALAR)
    }

    /// All that this CPU has, slowest first.
    pub fn available() -> impl Iterator<Item = Isa> {
        #[cfg(target_arch = "x86_64")]
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        #[cfg(target_arch = "x86_64")]
        let more = avx2.then_some(Isa(Level::Avx2));
        #[cfg(not(target_arch = "x86_64"))]
        let more = None;
        std::iter::once(Isa::SCALAR).chain(more)
    }

    /// The one of this [`Isa::name`]; `None` if there is none or this CPU lacks it.
    pub fn named(name: &str) -> Option<Isa> {
        Isa::available().find(|isa| isa.name() == name)
    }

    /// `scalar`, or `avx2` (with FMA and F16C).
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
        }
    }

    pub(crate) fn level(self) -> Level {
        self.0
    }
}

impl std::fmt::Debug for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Defines functions of an [`Isa`] and the arguments given, whose one body is compiled for every instruction set.
/// What the body calls must be `#[inline(always)]` to be compiled with it.
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
            match isa.level() {
                $crate::isa::Level::Scalar => scalar($($arg),*),
                #[cfg(target_arch = "x86_64")]
                #[allow(unsafe_code)]
                // SAFETY: the value proves that this CPU has the instruction set.
                $crate::isa::Level::Avx2 => unsafe { avx2($($arg),*) },
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
