//! Rewrites a template so that what it makes can be counted.
//!
//! minijinja carries `+`, `~`, `*`, slices and plain text out by itself, without a limit.
//! So operators become filters of ours: `a + b` becomes `a |_add( b)`.
//! Precedence stays, since a filter binds tightest.
//! Slices and assigned values pass through filters, and long plain text is announced.
//! What would nest too deep for a stack is refused.
//! Lines stay the same.
//! Knows nothing of what filters do.

/// How tags are marked.
#[derive(Clone, Copy, Debug)]
pub struct Marks<'a> {
    /// Around an expression.
    pub variable: (&'a str, &'a str),
    /// Around a statement.
    pub block: (&'a str, &'a str),
    /// Around a comment.
    pub comment: (&'a str, &'a str),
}

/// Those of Jinja.
pub const MARKS: Marks = Marks { variable: ("{{", "}}"), block: ("{%", "%}"), comment: ("{#", "#}") };

/// Why a template is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Refused {
    /// Line in the template, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// Bytes that a template may have: many times the longest known.
const SOURCE: usize = 4 << 20;
/// Words and signs within tags: ten times as many as the longest known has.
const TOKENS: usize = 50_000;
/// How deep expressions and chains of `elif` may nest: every sign that binds counts as a level
/// until the next comma.
const DEPTH: usize = 500;
/// Bytes of plain text that needn't be announced.
const SHORT: usize = 64;
/// Most bytes of plain text that can't be: white space, and what stands in `raw`.
const SILENT: usize = 1024;

/// The template with the same meaning whose values are counted.
///
/// # Errors
/// It is too long, or nests too deep.
pub fn bounded(source: &str, marks: &Marks) -> Result<String, Refused> {
    let mut writer = Writer::new(source);
    writer.template(marks)?;
    Ok(writer.out)
}

/// The same for an expression.
///
/// # Errors
/// As [`bounded`].
pub fn bounded_expression(source: &str) -> Result<String, Refused> {
    let mut writer = Writer::new(source);
    writer.tag(None, false)?;
    Ok(writer.out)
}

/// What stands between two brackets, or in a whole tag.
#[derive(Default)]
struct Frame {
    /// The precedence of each operator whose right side is being read.
    open: Vec<u8>,
    /// Where the operand begins that is being read, in what was written.
    operand: Option<usize>,
    /// Where the operand begins that this frame is a subscript of.
    subscript: Option<usize>,
    /// Whether there is a colon.
    colon: bool,
    /// How many signs bind, up to here.
    depth: usize,
}

/// What the last word or sign was.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    /// Nothing that a value ends with.
    Open,
    /// `.` or `|`, after which a word is a name.
    Selector,
    /// `is`, after which a word is a test.
    Is,
    /// The name of a test, after which its argument may stand.
    Test,
    /// A string, after which another one belongs to it.
    Text,
    /// The end of any other operand.
    Operand,
}

struct Writer<'a> {
    source: &'a str,
    at: usize,
    out: String,
    tokens: usize,
    /// For each open `if` how many `elif` it has, and how many that are together.
    ifs: Vec<usize>,
    elifs: usize,
    frames: Vec<Frame>,
    last: Last,
    /// Where the last word or sign ends, in what was written.
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

    /// Copies so many bytes.
    fn copy(&mut self, length: usize) {
        self.out += &self.rest()[..length];
        self.at += length;
    }

    fn template(&mut self, marks: &Marks) -> Result<(), Refused> {
        if self.source.len() > SOURCE {
            return self.refuse("the template is too long");
        }
        let starts = [marks.variable.0, marks.block.0, marks.comment.0];
        // Where each is found next.
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

    /// Plain text, announced if it is long: by a tag before the first sign that is no white space,
    /// where it changes nothing.
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

    /// A tag behind its opening mark, up to and with `close`; an expression without.
    fn tag(&mut self, close: Option<&str>, statement: bool) -> Result<(), Refused> {
        self.frames.clear();
        self.frames.push(Frame::default());
        self.last = Last::Open;
        self.end = self.out.len();
        if close.is_some() && self.rest().starts_with(['-', '+']) {
            self.copy(1);
        }
        let mut word = if statement { Some(()) } else { None };
        // Whether this is a `set`, whether of a namespace, and where its value ends.
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

    /// The end of a tag.
    fn finish(&mut self, value: Option<&str>) {
        self.terminate();
        value.into_iter().for_each(|end| self.insert(end));
    }

    /// Notes how deep statements nest by their conditions.
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

    /// Writes behind the last word or sign.
    fn insert(&mut self, text: &str) {
        self.out.insert_str(self.end, text);
        self.end += text.len();
    }

    /// Takes note of what was copied last.
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

    /// One more sign that binds.
    fn deeper(&mut self) -> Result<(), Refused> {
        self.frame().depth += 1;
        let depth: usize = self.frames.iter().map(|frame| frame.depth).sum();
        if depth > DEPTH { self.refuse("the expression nests too deep") } else { Ok(()) }
    }

    /// Closes the filters whose right side ends here: those that bind at least as tightly as
    /// `precedence`.
    fn close_from(&mut self, precedence: u8) {
        // Without a right side it is minijinja that says so.
        if !self.ended() {
            return self.frame().open.clear();
        }
        while self.frame().open.pop_if(|open| *open >= precedence).is_some() {
            self.insert(")");
        }
    }

    /// The end of an operand of anything that binds less than all operators.
    fn terminate(&mut self) {
        self.close_from(0);
        self.frame().operand = None;
    }

    /// Whether an operand goes on here.
    fn ended(&self) -> bool {
        matches!(self.last, Last::Test | Last::Text | Last::Operand)
    }

    /// An operand begins, or the argument of a test.
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
            // A sign before a number, or stars before arguments.
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

/// The length of a block of raw text that begins here; the inner `None` if it has no end.
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
