//! Returns what a terminal shows after receiving some bytes.

/// The lines of a terminal with unlimited scrolling.
pub struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Screen {
    /// Shows `bytes` on a terminal with this number of columns.
    pub fn of(bytes: &str, columns: usize) -> Screen {
        let mut screen = Screen { lines: vec![Vec::new()], row: 0, column: 0 };
        let mut characters = bytes.chars();
        while let Some(c) = characters.next() {
            match c {
                '\n' => screen.row += 1,
                '\r' => screen.column = 0,
                '\u{1b}' => {
                    assert_eq!(characters.next(), Some('['), "only CSI is known: {bytes:?}");
                    let mut number = String::new();
                    let last = loop {
                        match characters.next().unwrap() {
                            c @ '@'..='~' => break c,
                            c => number.push(c),
                        }
                    };
                    screen.control(last, number.parse().ok());
                }
                c => {
                    if screen.column == columns {
                        (screen.row, screen.column) = (screen.row + 1, 0);
                    }
                    screen.put(c);
                }
            }
        }
        screen
    }

    fn line(&mut self) -> &mut Vec<char> {
        let rows = self.lines.len().max(self.row + 1);
        self.lines.resize(rows, Vec::new());
        &mut self.lines[self.row]
    }

    fn put(&mut self, c: char) {
        let column = self.column;
        let line = self.line();
        line.resize(line.len().max(column + 1), ' ');
        line[column] = c;
        self.column += 1;
    }

    fn control(&mut self, last: char, number: Option<usize>) {
        let column = self.column;
        match (last, number) {
            ('K', None | Some(0)) => self.line().truncate(column),
            ('K', Some(2)) => self.line().clear(),
            ('A', number) => self.row = self.row.saturating_sub(number.unwrap_or(1)),
            ('D', number) => self.column = column.saturating_sub(number.unwrap_or(1)),
            // Styles, and sequences that no test inspects.
            ('m' | 'h' | 'l', _) => {}
            other => panic!("unknown: {other:?}"),
        }
    }

    /// Returns its text; seconds differ between runs.
    pub fn text(&self) -> String {
        let lines = self.lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned());
        let text = lines.collect::<Vec<_>>().join("\n");
        let mut parts = text.split(" s").peekable();
        let mut shown = String::new();
        while let Some(part) = parts.next() {
            let number = part.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |at| at + 1);
            let is_number = part[number..].contains('.') && part[number..].parse::<f64>().is_ok();
            shown += if is_number && parts.peek().is_some() { &part[..number] } else { part };
            if parts.peek().is_some() {
                shown += if is_number { "T s" } else { " s" };
            }
        }
        shown
    }
}
