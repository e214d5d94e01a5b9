//! The model that ships: small, built in, and there without a download.

use alara_engine::Gguf;

use super::ModelError;

/// What messages call it.
pub const NAME: &str = "alara-tiny.gguf";

/// Its file, at an address that lets its weights be used in place.
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
/// The tests exclude that.
pub fn open() -> Result<Gguf, ModelError> {
    Gguf::from_static(NAME, bytes()).map_err(ModelError::new)
}
