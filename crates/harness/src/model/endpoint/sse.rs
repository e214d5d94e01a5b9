//! Server-sent events: parses bytes as they arrive into the data of events.
//!
//! Format: WHATWG HTML, section 9.2.6.
//! Event names are ignored; comments keep a connection alive.

use std::time::Duration;

/// Parses a stream that may be split anywhere.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The current, unfinished line.
    line: Vec<u8>,
    /// The data of the current, unfinished event.
    data: Option<String>,
    /// The last byte was a carriage return, which forms one line end with a line feed.
    returned: bool,
    /// A line has been seen; the first may begin with a byte order mark.
    begun: bool,
    /// A comment or a field has been seen.
    any: bool,
    /// The last event's `id`, from which a stream can be resumed.
    id: Option<String>,
    /// How long to wait before resuming.
    retry: Option<Duration>,
}

impl Events {
    /// Processes the next bytes; returns the data of the events that they complete.
    /// An event that never ends is dropped.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut ended = Vec::new();
        for &byte in bytes {
            let returned = std::mem::replace(&mut self.returned, byte == b'\r');
            match byte {
                b'\n' if returned => {}
                b'\n' | b'\r' => ended.extend(self.end_line()),
                _ => self.line.push(byte),
            }
        }
        ended
    }

    /// Whether any input so far belongs to a stream of events.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// The event after which the stream can be resumed, if known, and how long to wait before that.
    pub(crate) fn resume(&self) -> (Option<&str>, Option<Duration>) {
        (self.id.as_deref().filter(|id| !id.is_empty()), self.retry)
    }

    /// Processes a complete line; returns the event's data if the line is the empty one that ends
    /// it.
    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let begun = std::mem::replace(&mut self.begun, true);
        let line = if begun { &line } else { line.trim_start_matches('\u{feff}') };
        if line.is_empty() {
            return self.data.take();
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        self.any |= ["", "data", "event", "id", "retry"].contains(&name);
        let value = value.strip_prefix(' ').unwrap_or(value);
        match (name, &mut self.data) {
            ("data", Some(data)) => *data += &format!("\n{value}"),
            ("data", None) => self.data = Some(value.to_owned()),
            ("id", _) if !value.contains('\0') => self.id = Some(value.to_owned()),
            ("retry", _) => self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_it_is_cut() {
        let check = |text: &str, expected: &[&str]| {
            for size in 1..=text.len() {
                let mut events = Events::default();
                let pieces = text.as_bytes().chunks(size);
                let data: Vec<String> = pieces.flat_map(|piece| events.push(piece)).collect();
                assert_eq!(data, expected, "{text:?} in pieces of {size}");
            }
        };
        check("data: a\n\ndata: b\n\n", &["a", "b"]);
        check("data:a\r\n\r\ndata:  b\r\n\r\n", &["a", " b"]);
        check("data: a\r\rdata: b\r\r", &["a", "b"]);
        check("\u{feff}data: é€🦀\n\n", &["é€🦀"]);
        check(": alive\n\n:\n\ndata: a\n: alive\n\n\n\n", &["a"]);
        check("event: x\nid: 1\nretry: 5\ndata: a\ndata\ndata: b\n\n", &["a\n\nb"]);
        check("data: [DONE]\n\n", &["[DONE]"]);
        check("data: cut off\n", &[]);
        check("database: a\n\n data: b\n\n", &[]);
    }

    #[test]
    fn where_a_stream_goes_on() {
        let check = |text: &str, id: Option<&str>, retry: Option<u64>| {
            let mut events = Events::default();
            events.push(text.as_bytes());
            assert_eq!(events.resume(), (id, retry.map(Duration::from_millis)), "{text:?}");
        };
        check("data: a\n\n", None, None);
        check("id: 7/1\ndata:\n\nretry: 250\n\n", Some("7/1"), Some(250));
        check("id: 1\ndata: a\n\nid: 2\nretry: soon\ndata: b\n\n", Some("2"), None);
        check("id: 1\ndata: a\n\nid\ndata: b\n\n", None, None);
        check("id: 1\nid: a\0b\n\n", Some("1"), None);
    }
}
