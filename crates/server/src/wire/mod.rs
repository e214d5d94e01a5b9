//! OpenAI's chat API as JSON (<https://platform.openai.com/docs/api-reference/chat>): requests,
//! answers, errors.
//!
//! Knows nothing of connections, models and teams.
//! A field that can't be honoured is refused by its name; nothing that would change what an answer
//! means is left out silently.

pub mod answer;
mod fields;
mod messages;
pub mod refusal;
pub mod request;

pub use answer::{Answer, End, Piece, Shape};
pub use refusal::Refusal;
pub use request::Asked;
