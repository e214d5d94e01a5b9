//! The two sides of a split model, and the transfer of operands between them.

use std::ops::Deref;

use super::Split;
use crate::backend::Backend;
use crate::{Error, Result};

/// A value on one of the two sides.
#[derive(Debug)]
pub enum Side<D, H> {
    /// On the device.
    Device(D),
    /// On the host.
    Host(H),
}

/// An activation on the wanted side, borrowed or transferred.
#[derive(Debug)]
pub(super) enum Carried<'a, T> {
    There(&'a T),
    Over(T),
}

impl<T> Deref for Carried<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Carried::There(x) => x,
            Carried::Over(x) => x,
        }
    }
}

/// Functions that run an op on one side, generated for each of the two.
macro_rules! side {
    ($side:ident, $variant:ident, $B:ident, $angles:tt; $other:ident, $other_variant:ident) => {
        pub(super) mod $side {
            use super::*;

            /// Wraps the op's result, which is on this side.
            pub use super::Side::$variant as wrap;

            /// The backend of this side.
            pub fn backend<D, H>(split: &mut Split<D, H>) -> &mut $B {
                &mut split.$side
            }

            /// A weight or a cache, which must be on this side.
            pub fn weight<D, H>(it: &Side<D, H>) -> Result<&$B> {
                match it {
                    Side::$variant(it) => Ok(it),
                    // All weights of a block are on the same side, so this is a bug in the loader.
                    Side::$other_variant(_) => Err(Error::Backend {
                        operation: "compute".to_owned(),
                        message: "its weights lie on both sides of a split model".to_owned(),
                    }),
                }
            }

            /// This side's cosines and sines.
            pub fn angles<D, H>(both: &(D, H)) -> &$B {
                &both.$angles
            }

            /// An activation, transferred if it is on the other side.
            pub fn array<'x, D: Backend, H: Backend>(
                split: &mut Split<D, H>,
                x: &'x Side<D::Array, H::Array>,
            ) -> Result<Carried<'x, $B::Array>> {
                Ok(match x {
                    Side::$variant(x) => Carried::There(x),
                    Side::$other_variant(x) => {
                        let rows = split.$other.count(x);
                        Carried::Over(split.$side.upload(split.$other.to_host(x)?, rows)?)
                    }
                })
            }

            /// An owned activation, transferred if it is on the other side.
            pub fn owned<D: Backend, H: Backend>(
                split: &mut Split<D, H>,
                x: Side<D::Array, H::Array>,
            ) -> Result<$B::Array> {
                match x {
                    Side::$variant(x) => Ok(x),
                    Side::$other_variant(x) => {
                        let rows = split.$other.count(&x);
                        split.$side.upload(split.$other.to_host(&x)?, rows)
                    }
                }
            }
        }
    };
}

side!(device, Device, D, 0; host, Host);
side!(host, Host, H, 1; device, Device);
