//! On which of the two sides something lies.

use std::ops::Deref;

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

impl<D, H> Side<D, H> {
    /// What lies on the device.
    pub(super) fn device(&self) -> Result<&D> {
        match self {
            Side::Device(it) => Ok(it),
            Side::Host(_) => Err(apart()),
        }
    }

    /// What lies on the host.
    pub(super) fn host(&self) -> Result<&H> {
        match self {
            Side::Host(it) => Ok(it),
            Side::Device(_) => Err(apart()),
        }
    }
}

/// A block's weights lie on one side, all of them, so this is a mistake of the loader.
pub(super) fn apart() -> Error {
    let message = "its weights lie on both sides of a split model".to_owned();
    Error::Backend { operation: "compute".to_owned(), message }
}
