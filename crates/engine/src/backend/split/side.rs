//! The two sides of a split model, and how an op gets what it reads to one of them.

use std::ops::Deref;

use super::Split;
use crate::backend::Backend;
use crate::{Error, Result};

/// What lies on one of the two sides.
#[derive(Debug)]
pub enum Side<D, H> {
    /// On the device.
    Device(D),
    /// On the host.
    Host(H),
}

/// An activation where it is wanted: it was there, or was carried over.
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

/// The functions by which an op runs on one side, once for each of the two.
macro_rules! side {
    ($side:ident, $variant:ident, $B:ident, $angles:tt; $other:ident, $other_variant:ident) => {
        pub(super) mod $side {
            use super::*;

            /// What the op gives lies here.
            pub use super::Side::$variant as wrap;

            /// Who computes here.
            pub fn backend<D, H>(split: &mut Split<D, H>) -> &mut $B {
                &mut split.$side
            }

            /// A weight, or what is cached, which must lie here.
            pub fn weight<D, H>(it: &Side<D, H>) -> Result<&$B> {
                match it {
                    Side::$variant(it) => Ok(it),
                    // All weights of a block lie on one side, so this is a mistake of the loader.
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

            /// An activation, which is carried over if it lies on the other side.
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

            /// The same, to be worked on.
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
