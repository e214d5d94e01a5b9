//! Tests which texts a schema's grammar permits, without a model.

use llguidance::Matcher;
use serde_json::Value;
use toktrie::ApproximateTokEnv;

use super::{Grammar, GrammarError, schema};

impl Grammar {
    /// A grammar over single bytes.
    pub fn of_bytes() -> Self {
        Grammar::new(ApproximateTokEnv::single_byte_env)
    }

    /// For each text, whether it may be a complete answer under a schema, verbatim.
    /// Requires a grammar over bytes.
    ///
    /// # Errors
    /// [`GrammarError::Schema`] if the schema can't be enforced, [`GrammarError::Failed`] if
    /// llguidance fails.
    pub fn verdicts(&self, schema: &Value, texts: &[impl AsRef<str>]) -> Result<Vec<bool>, GrammarError> {
        let refused = |refusal| GrammarError::Schema { refusal };
        let strict = schema::strict(schema).map_err(refused)?;
        let parser = self.compile_schema(&strict).map_err(refused)?;
        let matcher = Matcher::new(Ok(parser));
        texts.iter().map(|text| permits(matcher.deep_clone(), text.as_ref())).collect()
    }
}

/// Whether the grammar permits a text; failures of llguidance are errors.
fn permits(mut matcher: Matcher, text: &str) -> Result<bool, GrammarError> {
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    let judged = matcher
        .try_consume_tokens(&tokens)
        .and_then(|count| Ok(count == tokens.len() && (matcher.is_stopped() || matcher.is_accepting()?)));
    judged.map_err(|error| {
        let message = error.to_string().lines().next().unwrap_or_default().to_owned();
        GrammarError::Failed { message }
    })
}
