//! Rewrites a template so that its allocations can be counted.
//!
//! minijinja evaluates `+`, `~`, `*`, slices and plain text itself, without a limit.
//! So operators become filters of ours: `a + b` becomes `a |_add( b)`.
//! Precedence is preserved, since a filter binds tightest.
//! Slices and assigned values pass through filters, and long plain text is charged in advance.
//! Templates that nest too deep for the stack are refused.
//! Line numbers are preserved.
//! Knows nothing of the filters' implementation.

/// The delimiters of tags.
#[derive(Clone, Copy, Debug)]
pub struct Marks<'a> {
    /// Around an expression.
    pub variable: (&'a str, &'a str),
    /// Around a statement.
    pub block: (&'a str, &'a str),
    /// Around a comment.
    pub comment: (&'a str, &'a str),
}

/// Jinja's default delimiters.
pub const MARKS: Marks = Marks { variable: ("{{", "}}"), block: ("{%", "%}"), comment: ("{#", "#}") };

/// Why a template is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Refused {
    /// Line in the template, from 1.
    pub line: usize,
    /// The problem.
    pub what: &'static str,
}

/// Largest template in bytes: many times the longest known.
const SOURCE: usize = 4 << 20;
/// Most words and signs within tags: ten times as many as in the longest known template.
const TOKENS: usize = 50_000;
/// How deep expressions and chains of `elif` may nest: until the next comma, every operator counts
/// as a level.
const DEPTH: usize = 500;
/// Length of plain text that needn't be charged, in bytes.
const SHORT: usize = 64;
/// Most bytes of plain text that can't be charged: whitespace, and text in `raw`.
const SILENT: usize = 1024;

/// Rewrites a template to an equivalent one whose values are charged.
///
/// # Errors
/// If it is too long, or nests too deep.
pub fn bounded(source: &str, marks: &Marks) -> Result<String, Refused> {
    let mut writer = Writer::new(source);
    writer.template(marks)?;
    Ok(writer.out)
}

/// Rewrites an expression to an equivalent one whose values are charged.
///
/// # Errors
/// As [`bounded`].
pub fn bounded_expression(source: &str) -> Result<String, Refused> {
    let mut writer = Writer::new(source);
    writer.tag(None, false)?;
    Ok(writer.out)
}

/// The content of a pair of brackets, or of a whole tag.
#[derive(Default)]
struct Frame {
    /// The precedences of the operators whose right operand is being read.
    open: Vec<u8>,
    /// The start of the current operand, in the output.
    operand: Option<usize>,
    /// The start of the operand that this frame is a subscript of.
    subscript: Option<usize>,
    /// Whether the frame contains a colon.
    colon: bool,
    /// Number of operators up to here.
    depth: usize,
}

/// The kind of the last word or sign.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    /// A value can't end here.
    Open,
    /// `.` or `|`; a word after it is a name.
    Selector,
    /// `is`; a word after it is a test.
    Is,
    /// The name of a test, which its argument may follow.
    Test,
    /// A string; a following string is part of it.
    Text,
    /// The end of any other operand.
    Operand,
}

struct Writer<'a> {
    source: &'a str,
    at: usize,
    out: String,
    tokens: usize,
    /// For each open `if` its number of `elif`, and their total.
    ifs: Vec<usize>,
    elifs: usize,
    frames: Vec<Frame>,
    last: Last,
    /// The end of the last word or sign, in the output.
    end: usize,
}

impl<'a> Writer<'a> {
    fn new(source: &'a str) -> Self {
        Writer {
            source,
            at: 0,
            out: String::with_capacity(source.len() + source.len() / 8),
            tokens: 0,
            ifs: Vec::new(),
            elifs: 0,
            frames: Vec::new(),
            last: Last::Open,
            end: 0,
        }
    }

    fn refuse<T>(&self, what: &'static str) -> Result<T, Refused> {
        let before = &self.source.as_bytes()[..self.at.min(self.source.len())];
        Err(Refused { line: 1 + before.iter().filter(|byte| **byte == b'\n').count(), what })
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    /// Copies this many bytes.
    fn copy(&mut self, length: usize) {
        self.out += &self.rest()[..length];
        self.at += length;
    }

    fn template(&mut self, marks: &Marks) -> Result<(), Refused> {
        if self.source.len() > SOURCE {
            return self.refuse("the template is too long");
        }
        let starts = [marks.variable.0, marks.block.0, marks.comment.0];
        // The next position of each.
        let mut found = [Some(0); 3];
        loop {
            for (found, mark) in found.iter_mut().zip(starts) {
                if found.is_some_and(|at| at <= self.at) {
                    *found = self.rest().find(mark).map(|at| self.at + at);
                }
            }
            let Some(start) = found.iter().flatten().min().copied() else {
                return self.text(self.rest().len(), marks);
            };
            self.text(start - self.at, marks)?;
            if found[2] == Some(start) {
                let end = self.rest().find(marks.comment.1).map(|end| end + marks.comment.1.len());
                self.copy(end.unwrap_or(self.rest().len()));
            } else if found[1] == Some(start) {
                match raw(self.rest(), marks.block) {
                    Some(None) => return self.refuse("the raw text has no end"),
                    Some(Some(length)) if length > SILENT => return self.refuse("the raw text is too long"),
                    Some(Some(length)) => self.copy(length),
                    None => {
                        self.copy(marks.block.0.len());
                        self.tag(Some(marks.block.1), true)?;
                    }
                }
            } else {
                self.copy(marks.variable.0.len());
                self.tag(Some(marks.variable.1), false)?;
            }
        }
    }

    /// Copies plain text; long text is charged by a tag before its first non-whitespace character,
    /// where the tag doesn't change the output.
    fn text(&mut self, length: usize, marks: &Marks) -> Result<(), Refused> {
        if length > SHORT {
            match self.rest()[..length].find(|character: char| !character.is_whitespace()) {
                Some(blank) => {
                    self.copy(blank);
                    let (open, close) = marks.block;
                    self.out += &format!("{open}+ if ''|_text({length}) {close}{open} endif {close}");
                    self.copy(length - blank);
                    return Ok(());
                }
                None if length > SILENT => return self.refuse("the white space is too long"),
                None => {}
            }
        }
        self.copy(length);
        Ok(())
    }

    /// Copies a tag after its opening delimiter, through `close`; an expression has no `close`.
    fn tag(&mut self, close: Option<&str>, statement: bool) -> Result<(), Refused> {
        self.frames.clear();
        self.frames.push(Frame::default());
        self.last = Last::Open;
        self.end = self.out.len();
        if close.is_some() && self.rest().starts_with(['-', '+']) {
            self.copy(1);
        }
        let mut word = if statement { Some(()) } else { None };
        // Whether this is a `set`, whether its target is a namespace, and where its value ends.
        let (mut set, mut stored, mut value) = (false, false, None);
        loop {
            let rest = self.rest();
            let Some(first) = rest.chars().next() else {
                self.finish(value);
                return Ok(());
            };
            if first.is_whitespace() {
                self.copy(first.len_utf8());
                continue;
            }
            if let Some(close) = close.filter(|_| self.frames.len() == 1) {
                let sign = usize::from(rest.starts_with(['-', '+']));
                for skipped in [sign, 0] {
                    if rest[skipped..].starts_with(close) {
                        self.finish(value);
                        self.copy(skipped + close.len());
                        return Ok(());
                    }
                }
            }
            stored |= first == '.';
            self.tokens += 1;
            if self.tokens > TOKENS {
                return self.refuse("the template is too long");
            }
            if first == '=' && !rest.starts_with("==") && set && value.is_none() && self.frames.len() == 1 {
                self.terminate();
                self.copy(1);
                self.out += " (";
                value = Some(if stored { ")|_store" } else { ")|_keep" });
                self.done(Last::Open);
                continue;
            }
            let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            match first {
                '"' | '\'' => self.string(first),
                _ if first.is_ascii_digit() => self.number(),
                _ if length > 0 && word.take().is_some() => {
                    set = &rest[..length] == "set";
                    self.statement(&rest[..length])?;
                    self.copy(length);
                    self.end = self.out.len();
                }
                _ if length > 0 => self.word(&rest[..length])?,
                '(' | '[' | '{' => self.open(first)?,
                ')' | ']' | '}' => self.close(first),
                _ => self.sign(first)?,
            }
        }
    }

    /// Ends a tag.
    fn finish(&mut self, value: Option<&str>) {
        self.terminate();
        value.into_iter().for_each(|end| self.insert(end));
    }

    /// Tracks how deep conditional statements nest.
    fn statement(&mut self, word: &str) -> Result<(), Refused> {
        match word {
            "if" => self.ifs.push(0),
            "elif" => {
                self.elifs += 1;
                self.ifs.last_mut().into_iter().for_each(|count| *count += 1);
            }
            "endif" => self.elifs -= self.ifs.pop().unwrap_or_default().min(self.elifs),
            _ => {}
        }
        if self.elifs > DEPTH {
            return self.refuse("too many conditions depend on each other");
        }
        Ok(())
    }

    /// Inserts after the last word or sign.
    fn insert(&mut self, text: &str) {
        self.out.insert_str(self.end, text);
        self.end += text.len();
    }

    /// Records the kind of what was copied last.
    fn done(&mut self, last: Last) {
        self.last = last;
        self.end = self.out.len();
    }

    fn frame(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.frames.push(Frame::default());
        }
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// Counts one more operator.
    fn deeper(&mut self) -> Result<(), Refused> {
        self.frame().depth += 1;
        let depth: usize = self.frames.iter().map(|frame| frame.depth).sum();
        if depth > DEPTH { self.refuse("the expression nests too deep") } else { Ok(()) }
    }

    /// Closes the filters whose right operand ends here: those that bind at least as tightly as
    /// `precedence`.
    fn close_from(&mut self, precedence: u8) {
        // Leave it to minijinja to report a missing right operand.
        if !self.ended() {
            return self.frame().open.clear();
        }
        while self.frame().open.pop_if(|open| *open >= precedence).is_some() {
            self.insert(")");
        }
    }

    /// Ends an operand of anything that binds less tightly than all operators.
    fn terminate(&mut self) {
        self.close_from(0);
        self.frame().operand = None;
    }

    /// Whether an operand can end here.
    fn ended(&self) -> bool {
        matches!(self.last, Last::Test | Last::Text | Last::Operand)
    }

    /// Begins an operand, or the argument of a test.
    fn begin(&mut self) {
        if self.ended() && self.last != Last::Test {
            self.terminate();
        }
        let at = self.out.len();
        self.frame().operand.get_or_insert(at);
    }

    fn string(&mut self, quote: char) {
        if self.last != Last::Text {
            self.begin();
        }
        let mut escaped = false;
        let closes = |byte: u8| {
            let closes = !escaped && byte == quote as u8;
            escaped = !escaped && byte == b'\\';
            closes
        };
        let length = self.rest().bytes().skip(1).position(closes).map(|at| at + 2);
        self.copy(length.unwrap_or(self.rest().len()));
        self.done(Last::Text);
    }

    fn number(&mut self) {
        let selected = self.last == Last::Selector;
        if !selected {
            self.begin();
        }
        let bytes = self.rest().as_bytes();
        let mut length = 0;
        while let Some(byte) = bytes.get(length) {
            let before = if length > 0 { bytes[length - 1] } else { b' ' };
            let digit = bytes.get(length + 1).is_some_and(u8::is_ascii_digit);
            let goes_on = byte.is_ascii_alphanumeric()
                || *byte == b'_'
                || *byte == b'.' && digit && !selected
                || matches!(byte, b'+' | b'-') && matches!(before, b'e' | b'E') && digit;
            if !goes_on {
                break;
            }
            length += 1;
        }
        self.copy(length);
        self.done(Last::Operand);
    }

    fn word(&mut self, word: &str) -> Result<(), Refused> {
        let last = match (self.last, word) {
            (Last::Selector, _) => Last::Operand,
            (Last::Is, "not") => Last::Is,
            (Last::Is, _) => Last::Test,
            (Last::Test | Last::Text | Last::Operand, "is") => {
                self.deeper()?;
                Last::Is
            }
            (_, "and" | "or" | "not" | "in" | "if" | "else") => {
                self.terminate();
                self.deeper()?;
                Last::Open
            }
            _ => {
                self.begin();
                Last::Operand
            }
        };
        self.copy(word.len());
        self.done(last);
        Ok(())
    }

    fn open(&mut self, bracket: char) -> Result<(), Refused> {
        // The argument of a test may be a list or a mapping.
        let postfix = self.ended() && bracket != '{' && !(self.last == Last::Test && bracket == '[');
        if !postfix {
            self.begin();
        }
        self.deeper()?;
        let operand = self.frame().operand.filter(|_| postfix && bracket == '[');
        self.copy(1);
        self.frames.push(Frame { subscript: operand, ..Frame::default() });
        self.done(Last::Open);
        Ok(())
    }

    fn close(&mut self, bracket: char) {
        self.terminate();
        let frame = if self.frames.len() > 1 { self.frames.pop() } else { None };
        self.copy(1);
        self.done(Last::Operand);
        if let Some(Frame { subscript: Some(start), colon: true, .. }) = frame
            && bracket == ']'
        {
            self.out.insert(start, '(');
            self.out += "|_made)";
            self.end = self.out.len();
        }
    }

    fn sign(&mut self, first: char) -> Result<(), Refused> {
        let rest = self.rest();
        let operator = match first {
            '+' => Some((1, 1, "_add")),
            '-' => Some((1, 1, "_sub")),
            '~' => Some((2, 1, "_cat")),
            '*' if rest.starts_with("**") => Some((4, 2, "_pow")),
            '*' => Some((3, 1, "_mul")),
            '/' if rest.starts_with("//") => Some((3, 2, "_floordiv")),
            '/' => Some((3, 1, "_div")),
            '%' => Some((3, 1, "_mod")),
            _ => None,
        };
        match (first, operator) {
            // A unary sign, or stars before arguments.
            (_, Some((_, length, _))) if !self.ended() || self.last == Last::Test && "+-".contains(first) => {
                self.deeper()?;
                self.copy(length);
                self.done(Last::Open);
            }
            (_, Some((precedence, length, name))) => {
                self.close_from(precedence);
                self.deeper()?;
                self.frame().open.push(precedence);
                self.frame().operand = None;
                self.out += &format!("|{name}(");
                self.at += length;
                self.done(Last::Open);
            }
            ('.' | '|', None) => {
                self.deeper()?;
                self.copy(1);
                self.done(Last::Selector);
            }
            _ => {
                self.terminate();
                match first {
                    ',' => self.frame().depth = 0,
                    ':' => self.frame().colon = true,
                    _ => self.deeper()?,
                }
                let double = ["==", "!=", "<=", ">="].iter().any(|sign| rest.starts_with(sign));
                self.copy(if double { 2 } else { first.len_utf8() });
                self.done(Last::Open);
            }
        }
        Ok(())
    }
}

/// The length of a raw block that begins here; the inner `None` if it isn't closed.
fn raw(text: &str, (open, close): (&str, &str)) -> Option<Option<usize>> {
    let tag = |text: &str, word: &str| {
        let rest = text.strip_prefix(open)?;
        let rest =
            rest.strip_prefix(['-', '+']).unwrap_or(rest).trim_start().strip_prefix(word)?.trim_start();
        let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix(close)?;
        Some(text.len() - rest.len())
    };
    let begin = tag(text, "raw")?;
    let mut ends = text[begin..].match_indices(open).map(|(at, _)| begin + at);
    Some(ends.find_map(|at| Some(at + tag(&text[at..], "endraw")?)))
}

#[cfg(test)]
mod tests;
