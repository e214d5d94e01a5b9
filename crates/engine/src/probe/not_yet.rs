//! Cases of `$ALARA_SHARED/fixtures/arch-more` that do not agree yet. A test fails as soon as one of them does: it then leaves this list.

/// Their names.
pub const NOT_YET: &[&str] = &[];
