//! What keeps a template from a file from hanging the process or running out of stack.
//!
//! minijinja's parser and code generator recurse on some chains without a limit of their own, and so does dropping a
//! deeply nested value. So both compiling and rendering run on a deep stack, and are bounded in what they can put on it.

use std::io;

use serde_json::{Map, Value};

/// Bytes of the stack that templates are compiled and rendered on: address space, of which only what is used counts.
const STACK: usize = 256 << 20;

/// Tokens outside strings and comments that a template may have: ten times as many as the longest known.
const TOKENS: usize = 50_000;

/// Runs `work` on a deep stack.
///
/// # Errors
/// If there is no thread to be had.
pub(super) fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK);
        thread.spawn_scoped(scope, work)?.join().map_err(|_| io::Error::other("rendering panicked"))
    })
}

/// Instructions that a rendering with these variables may take. Honest templates need some dozen for each value, and as
/// many again for each message where they look ahead from every message.
pub(super) fn fuel(variables: &Map<String, Value>) -> u64 {
    fn count(value: &Value) -> u64 {
        match value {
            Value::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
            Value::Object(map) => 1 + map.values().map(count).sum::<u64>(),
            _ => 1,
        }
    }
    300_000 + 2_000 * variables.values().map(count).sum::<u64>()
}

/// The line in which the template is longer than any honest one; `None` = it is not.
pub(super) fn too_long(source: &str) -> Option<usize> {
    let mut tokens = 0;
    let mut quote = None;
    let mut inside = false;
    let mut previous = ' ';
    let mut escaped = false;
    for (at, character) in source.char_indices() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if character == '\\' => escaped = true,
            Some(open) => quote = quote.filter(|_| character != open),
            None if !inside => inside = previous == '{' && matches!(character, '{' | '%'),
            None if matches!(previous, '}' | '%') && character == '}' => inside = false,
            None if matches!(character, '"' | '\'') => quote = Some(character),
            None => {
                let continues = character.is_whitespace() || word(character) && word(previous);
                tokens += usize::from(!continues);
                if tokens > TOKENS {
                    return Some(1 + source[..at].matches('\n').count());
                }
            }
        }
        previous = character;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_text_are_not_counted() {
        let check = |source: &str, expected| assert_eq!(too_long(source), expected, "{source:.40}");
        check(&"a - b ".repeat(TOKENS), None);
        check(&format!("{{{{ '{}' }}}}", "- ".repeat(TOKENS)), None);
        check(&format!("{{{{ 'it\\'s' ~ \"{}\" }}}}", "- ".repeat(TOKENS)), None);
        check(&format!("\n\n{{{{ {}1 }}}}", "-".repeat(TOKENS)), Some(3));
        check(&"{% if a %}\n".repeat(TOKENS), Some(TOKENS / 3 + 1));
    }

    #[test]
    fn work_comes_back_and_panics_are_errors() {
        assert!(on_deep_stack(|| 1).is_ok_and(|one| one == 1));
        assert!(on_deep_stack(|| panic!("as wanted")).is_err());
    }
}
