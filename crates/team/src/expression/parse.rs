//! Parses expressions.

use std::fmt;

use serde_json::{Number, Value};

use super::{Comparison, Counter, Expression, Filter, Key, Sign, Test};

/// Most bytes of an expression.
const BYTES: usize = 4096;
/// How deep it may nest.
const DEPTH: usize = 32;
/// Words that can't be names.
const WORDS: [&str; 7] = ["and", "or", "not", "in", "is", "if", "else"];

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// A part that isn't in the language, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > BYTES {
            return Err(format!("an expression may have {BYTES} bytes, this one has {}", text.len()));
        }
        if let Some(inner) = text.trim_start().strip_prefix("{{") {
            let inner = inner.trim_end().trim_end_matches("}}").trim();
            return Err(format!("an expression has no braces around it: \"{inner}\""));
        }
        whole(text).map_err(|error| {
            // The syntax of other languages.
            let signs = text.replace("!=", "");
            let words = [("&&", "and"), ("||", "or"), ("!", "not")];
            let meant = words.into_iter().find(|(sign, _)| signs.contains(sign));
            let hint = meant.map(|(sign, word)| format!("; for `{sign}` write `{word}`"));
            error + &hint.unwrap_or_default()
        })
    }
}

fn whole(text: &str) -> Result<Expression, String> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    let expression = parser.or()?;
    match parser.peek() {
        None => Ok(expression),
        Some(token) => Err(format!("`{token}` is not expected here: and, or and comparisons join values")),
    }
}

/// A word or sign.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Number(Number),
    Sign(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Token::Word(word) => f.write_str(word),
            Token::Text(text) => write!(f, "'{text}'"),
            Token::Number(number) => write!(f, "{number}"),
            Token::Sign(sign) => f.write_str(sign),
        }
    }
}

/// The longer ones first.
const SIGNS: [&str; 18] =
    ["==", "!=", "<=", ">=", "<", ">", "(", ")", "[", "]", ".", ",", "|", "+", "-", "*", "=", "/"];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => {
                let (value, length) = quoted(rest, first)?;
                tokens.push(Token::Text(value));
                length
            }
            '0'..='9' => {
                // The word after a point is a key: `items.0.name`.
                let whole = tokens.last() == Some(&Token::Sign("."));
                let end = number_end(rest, whole);
                let number: Number =
                    rest[..end].parse().map_err(|_| format!("`{}` is no number", &rest[..end]))?;
                tokens.push(Token::Number(number));
                end
            }
            _ if first.is_alphabetic() || first == '_' => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..end].to_owned()));
                end
            }
            _ => {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
                let sign = sign.ok_or_else(|| format!("`{first}` is no sign of a rule"))?;
                tokens.push(Token::Sign(sign));
                sign.len()
            }
        };
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn number_end(text: &str, whole: bool) -> usize {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let end = digits(text);
    match text[end..].strip_prefix('.') {
        Some(fraction) if !whole && digits(fraction) > 0 => end + 1 + digits(fraction),
        _ => end,
    }
}

/// The text between quotes at the beginning, and its length in bytes with the quotes.
fn quoted(text: &str, quote: char) -> Result<(String, usize), String> {
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            _ if c == quote => return Ok((value, at + 1)),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, c @ ('\\' | '\'' | '"'))) => value.push(c),
                _ => return Err("a backslash stands before n, t, a quote or a backslash".to_owned()),
            },
            _ => value.push(c),
        }
    }
    Err(format!("the text {text} has no end: a {quote} is missing"))
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.next += usize::from(found);
        found
    }

    fn word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.sign(sign) {
            return Ok(());
        }
        Err(match self.peek() {
            Some(found) => format!("`{sign}` is missing before `{found}`"),
            None => format!("`{sign}` is missing at the end"),
        })
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("it nests deeper than {DEPTH}"));
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn or(&mut self) -> Result<Expression, String> {
        self.deeper(|parser| {
            let mut left = parser.and()?;
            while parser.word("or") {
                left = Expression::Or(Box::new(left), Box::new(parser.and()?));
            }
            Ok(left)
        })
    }

    fn and(&mut self) -> Result<Expression, String> {
        let mut left = self.not()?;
        while self.word("and") {
            left = Expression::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expression, String> {
        if self.word("not") {
            return self.deeper(|parser| Ok(Expression::Not(Box::new(parser.not()?))));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expression, String> {
        let left = self.sum()?;
        let Some(comparison) = self.compared()? else { return Ok(left) };
        let right = self.sum()?;
        if self.compared()?.is_some() {
            return Err("comparisons are no chain: join two of them by `and`".to_owned());
        }
        Ok(Expression::Compare(comparison, Box::new(left), Box::new(right)))
    }

    fn compared(&mut self) -> Result<Option<Comparison>, String> {
        let signs = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        if let Some((_, comparison)) = signs.into_iter().find(|(sign, _)| self.sign(sign)) {
            return Ok(Some(comparison));
        }
        if self.sign("=") {
            return Err("`=` compares nothing: it is `==`".to_owned());
        }
        if self.word("in") {
            return Ok(Some(Comparison::In));
        }
        if !self.word("not") {
            return Ok(None);
        }
        if self.word("in") { Ok(Some(Comparison::NotIn)) } else { Err("`not in` is meant?".to_owned()) }
    }

    fn sum(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        loop {
            let sign = match () {
                () if self.sign("+") => Sign::Plus,
                () if self.sign("-") => Sign::Minus,
                () => return Ok(left),
            };
            left = Expression::Compute(sign, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.postfix()?;
        while self.sign("*") {
            left = Expression::Compute(Sign::Times, Box::new(left), Box::new(self.postfix()?));
        }
        Ok(left)
    }

    /// A value with its filters and tests, which bind tightest.
    fn postfix(&mut self) -> Result<Expression, String> {
        let mut value = self.value()?;
        loop {
            if self.sign("|") {
                value = Expression::Filter(self.filter()?, Box::new(value));
            } else if self.word("is") {
                let negated = self.word("not");
                let (test, opposite) = self.test()?;
                if test == Test::Defined && !matches!(value, Expression::Path(_)) {
                    return Err("only of a path it can be asked whether it is defined".to_owned());
                }
                value = Expression::Test(test, Box::new(value));
                if negated != opposite {
                    value = Expression::Not(Box::new(value));
                }
            } else {
                return Ok(value);
            }
        }
    }

    fn filter(&mut self) -> Result<Filter, String> {
        let name = self.name("a filter")?;
        match name.as_str() {
            "length" | "count" => Ok(Filter::Length),
            "lower" => Ok(Filter::Lower),
            "map" => {
                self.expect("(")?;
                if !self.word("attribute") {
                    return Err("a filter `map` is written as map(attribute='name')".to_owned());
                }
                self.expect("=")?;
                let Some(Token::Text(attribute)) = self.peek().cloned() else {
                    return Err("a filter `map` is written as map(attribute='name')".to_owned());
                };
                self.next += 1;
                self.expect(")")?;
                Ok(Filter::Map(attribute))
            }
            _ => Err(format!("there is no filter `{name}` (known: length, lower, map)")),
        }
    }

    /// A test, and whether its name negates it.
    fn test(&mut self) -> Result<(Test, bool), String> {
        let name = self.name("a test")?;
        match name.as_str() {
            "defined" => Ok((Test::Defined, false)),
            "undefined" => Ok((Test::Defined, true)),
            "none" => Ok((Test::None, false)),
            "startingwith" => Ok((Test::StartingWith(self.argument()?), false)),
            "endingwith" => Ok((Test::EndingWith(self.argument()?), false)),
            _ => Err(format!(
                "there is no test `{name}` (known: defined, undefined, none, startingwith, endingwith)"
            )),
        }
    }

    fn argument(&mut self) -> Result<String, String> {
        self.expect("(")?;
        let Some(Token::Text(text)) = self.peek().cloned() else {
            return Err("this test needs a text in brackets: ('a')".to_owned());
        };
        self.next += 1;
        self.expect(")")?;
        Ok(text)
    }

    fn name(&mut self, what: &str) -> Result<String, String> {
        match self.peek().cloned() {
            Some(Token::Word(name)) => {
                self.next += 1;
                Ok(name)
            }
            Some(found) => Err(format!("{what} is missing before `{found}`")),
            None => Err(format!("{what} is missing at the end")),
        }
    }

    fn value(&mut self) -> Result<Expression, String> {
        let Some(token) = self.peek().cloned() else {
            return Err("a value is missing at the end".to_owned());
        };
        self.next += 1;
        match token {
            Token::Text(text) => Ok(Expression::Literal(text.into())),
            Token::Number(number) => Ok(Expression::Literal(Value::Number(number))),
            Token::Sign("-") => match self.peek().cloned() {
                Some(Token::Number(number)) => {
                    self.next += 1;
                    let negative =
                        format!("-{number}").parse().map_err(|_| format!("`-{number}` is no number"))?;
                    Ok(Expression::Literal(Value::Number(negative)))
                }
                _ => Err("`-` stands before a number or between two".to_owned()),
            },
            Token::Sign("(") => {
                let inner = self.or()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => self.deeper(Parser::list),
            Token::Sign(sign) => Err(format!("a value is missing before `{sign}`")),
            Token::Word(word) => match word.as_str() {
                "true" | "True" => Ok(Expression::Literal(true.into())),
                "false" | "False" => Ok(Expression::Literal(false.into())),
                "none" | "None" => Ok(Expression::Literal(Value::Null)),
                word if WORDS.contains(&word) => Err(format!("a value is missing before `{word}`")),
                _ => self.deeper(|parser| parser.path(word)),
            },
        }
    }

    fn list(&mut self) -> Result<Expression, String> {
        let mut items = Vec::new();
        while !self.sign("]") {
            items.push(self.or()?);
            if !self.sign(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(Expression::List(items))
    }

    fn path(&mut self, root: String) -> Result<Expression, String> {
        if self.sign("(") {
            let counter = Counter::ALL.into_iter().find(|counter| counter.name() == root);
            let counter = counter
                .ok_or_else(|| format!("there is no function `{root}`, only ok('…') and failed('…')"))?;
            let Some(Token::Text(pattern)) = self.peek().cloned() else {
                let (what, example) = match counter {
                    Counter::Ok | Counter::Failed => ("the name of a tool", "get_*"),
                    Counter::Said => ("words", "date of birth"),
                };
                return Err(format!("`{root}` takes {what} in quotes: {root}('{example}')"));
            };
            self.next += 1;
            self.expect(")")?;
            return Ok(Expression::Count(counter, pattern));
        }
        let mut keys = vec![Key::Name(root)];
        loop {
            if self.sign(".") {
                let key = match self.peek().cloned() {
                    Some(Token::Word(name)) => name,
                    Some(Token::Number(number)) => number.to_string(),
                    _ => return Err("a name is missing after `.`".to_owned()),
                };
                self.next += 1;
                keys.push(Key::Name(key));
            } else if self.sign("[") {
                keys.push(Key::Of(self.or()?));
                self.expect("]")?;
            } else {
                return Ok(Expression::Path(keys));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told() {
        let check = |text: &str, expected: &str| {
            assert_eq!(Expression::parse(text).unwrap_err(), expected, "{text}");
        };
        check("a = 1", "`=` compares nothing: it is `==`");
        check("a == ", "a value is missing at the end");
        check("a and or b", "a value is missing before `or`");
        check("1 < a < 3", "comparisons are no chain: join two of them by `and`");
        check("(a == 1", "`)` is missing at the end");
        check("a == 'x", "the text 'x has no end: a ' is missing");
        check("now() > 1", "there is no function `now`, only ok('…') and failed('…')");
        check("said(it)", "`said` takes words in quotes: said('date of birth')");
        check("ok(get) > 1", "`ok` takes the name of a tool in quotes: ok('get_*')");
        check(
            "a is even",
            "there is no test `even` (known: defined, undefined, none, startingwith, endingwith)",
        );
        check("a | upper == 'A'", "there is no filter `upper` (known: length, lower, map)");
        check("a b", "`b` is not expected here: and, or and comparisons join values");
        check("a ? b", "`?` is no sign of a rule");
        check("'a' is defined", "only of a path it can be asked whether it is defined");
        check(&"(".repeat(100), "it nests deeper than 32");
        check(&"not ".repeat(100), "it nests deeper than 32");
        check(&"[".repeat(100), "it nests deeper than 32");
        check(&"a[".repeat(100), "it nests deeper than 32");
        assert!(Expression::parse(&"a".repeat(5000)).is_err());
    }
}
