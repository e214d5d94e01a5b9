//! The model that ships with alara: small, built in, and available without a download.

use alara_engine::Gguf;

use crate::error::Result;

/// Its name in messages.
pub const NAME: &str = "alara-tiny.gguf";

/// Its file, aligned so that its weights can be used in place.
pub fn bytes() -> &'static [u8] {
    #[repr(C, align(64))]
    struct Aligned<T: ?Sized>(T);
    static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/",
        env!("ALARA_MODELS"),
        "/alara-tiny.gguf"
    )));
    &MODEL.0
}

/// The file, opened.
///
/// # Errors
/// None: the tests make sure of that.
pub fn open() -> Result<Gguf> {
    Ok(Gguf::from_static(NAME, bytes()).map_err(alara_engine::Error::from)?)
}
